"""Reviewers' strategies, corpora and targets, and the runner of case files."""
