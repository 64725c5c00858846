"""What every room stands on: array types, errors, random state, precision, devices, linear algebra,
and the tags of classes in files. Imports no other room."""
