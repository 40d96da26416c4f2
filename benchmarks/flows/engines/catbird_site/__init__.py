"""The smallest Django project with our flows in it."""
