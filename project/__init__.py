"""The host project: what a Django team's own project looks like with catbird_django in it, and the demo."""
