"""Generated message classes: one module per API, request and response together."""
