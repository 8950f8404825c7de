#!/usr/bin/env python3
"""Count the primes below two million on every node of a Ray cluster at once: 148933 of them.

The interval is cut into blocks; one worker is pinned to each node (STRICT_SPREAD, so it cannot be that one node does it
all) and takes its share of the blocks. RAY_ADDRESS names the cluster. The last line is `N primes below M, counted on K nodes`.
"""

import argparse

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote(num_cpus=1)
class Counter:
    """Counts primes by a sieve over one block at a time."""

    def __init__(self, limit):
        root = int(limit**0.5) + 1
        self.small = [n for n in range(2, root) if all(n % d for d in range(2, int(n**0.5) + 1))]

    def node(self):
        return ray.get_runtime_context().get_node_id()

    def count(self, start, end):
        prime = bytearray([1]) * (end - start)
        for p in self.small:
            first = max(p * p, -(-start // p) * p)
            prime[first - start :: p] = bytes(len(range(first, end, p)))
        return sum(prime)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=2_000_000)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=20)
    options = parser.parse_args()

    ray.init(log_to_driver=False)
    group = placement_group([{"CPU": 1}] * options.nodes, strategy="STRICT_SPREAD")
    ray.get(group.ready(), timeout=120)
    counters = [
        Counter.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, bundle)).remote(options.limit)
        for bundle in range(options.nodes)
    ]
    nodes = ray.get([counter.node.remote() for counter in counters])

    edges = [2 + (options.limit - 2) * block // options.blocks for block in range(options.blocks + 1)]
    parts = ray.get(
        [counters[i % options.nodes].count.remote(*edge) for i, edge in enumerate(zip(edges, edges[1:]))]
    )
    for index, node in enumerate(nodes):
        print(f"node {node[:8]} found {sum(parts[index :: options.nodes])}", flush=True)
    print(f"{sum(parts)} primes below {options.limit}, counted on {len(set(nodes))} nodes", flush=True)


if __name__ == "__main__":
    main()
