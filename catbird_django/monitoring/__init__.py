"""What people see of tasks and workers: shared by the admin and the commands."""
