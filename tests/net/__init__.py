"""Networks that the tests make: namespaces, servers at documentation addresses, a DNS double.

The address guard has no test switch, so an end-to-end test gives the proxy a network in
which the servers are neither this machine nor on a network that it stands on.
"""
