"""How fast it is: the measurements behind `dagp bench`."""
