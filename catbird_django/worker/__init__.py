"""The worker: claims runs, runs their handlers, settles what came of it."""
