"""What a model is: parameters, kernels, means, sparse GPs and their variational distributions,
processes, gates, and the association of both. Imports `core`."""
