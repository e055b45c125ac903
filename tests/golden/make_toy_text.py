"""Writes toy_text.h: the transition tables of Gymnasium's toy texts.

    python make_toy_text.py > toy_text.h        (made with Gymnasium 1.4.0, NumPy 2.4.6)

An outcome is one number: 2^20 if it terminates + the next state * 256 + the reward + 128.
"""
import gymnasium


def packed(outcomes):
    return [(int(end) << 20) + int(to) * 256 + int(reward) + 128 for _, to, reward, end in outcomes]


def lines(kind, identifier, numbers):
    print(f"static const {kind} golden_{identifier} = {{")
    line = "   "
    for number in numbers:
        if len(line) + len(f" {number},") > 100:
            print(line)
            line = "   "
        line += f" {number},"
    print(f"{line}\n}};")


def table(identifier, name, among=None, **arguments):
    """States in order, actions in each, outcomes of each, zeros for what other actions have more."""
    table = gymnasium.make(name, disable_env_checker=True, **arguments).unwrapped.P
    states = sorted(s for s in table if among is None or among(s))
    probabilities = max(([p for p, *_ in table[s][a]] for s in states for a in table[s]), key=len)
    numbers = []
    for state in states:
        for action in sorted(table[state]):
            outcomes = table[state][action]
            assert len(outcomes) == 1 or [p for p, *_ in outcomes] == probabilities
            numbers += packed(outcomes) + [0] * (len(probabilities) - len(outcomes))
    lines("int32_t", f"{identifier}[]", numbers)
    lines("double", f"{identifier}_probabilities[]", [float(p).hex() for p in probabilities])


def masks():
    env = gymnasium.make("Taxi-v4").unwrapped
    return [sum(int(bit) << i for i, bit in enumerate(env.action_mask(s))) for s in range(500)]


def main():
    print("/* Made by make_toy_text.py: the outcomes of each state and action, each one 2^20 if it")
    print(" * terminates + the next state * 256 + the reward + 128, zeros where it has one alone; and")
    print(" * how probable they are where there are several. */")
    print("/* clang-format off */")
    table("frozen_lake", "FrozenLake-v1", is_slippery=False)
    table("frozen_lake_slippery", "FrozenLake-v1")
    table("frozen_lake_8x8", "FrozenLake8x8-v1")
    table("frozen_lake_8x8_steady", "FrozenLake-v1", map_name="8x8", success_rate=0.8)
    table("cliff_walking", "CliffWalking-v1")
    table("cliff_walking_slippery", "CliffWalkingSlippery-v1")
    table("taxi", "Taxi-v4")
    # Where the taxi goes does not depend on the passenger.
    table("taxi_rainy", "Taxi-v4", among=lambda s: s % 20 in (2, 17), is_rainy=True)
    lines("int32_t", "taxi_masks[]", masks())  # the bits of the actions that are allowed


main()
