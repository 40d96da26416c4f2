"""The smallest Django project with our tasks in it."""
