"""The systems the paper compares with, each as a scikit-learn estimator.

They take the same data as `dagp.DAGP`, and those that predict a density answer with the same
`Mixture`, so that scores can be compared.
"""
