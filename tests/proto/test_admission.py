"""The limit of calls a minute and the patterns that pause: `proto/policy/admission.py`."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto.errors import RateLimited
from proto.policy.admission import (
    METADATA_NAMES,
    MINUTE_S,
    REFUSALS_MOST,
    TARGETS_MOST,
    Admission,
)

GAPS = st.floats(0.0, 45.0) | st.sampled_from([0.0, 30.0, 60.0])
TIMES = st.lists(GAPS, max_size=60).map(lambda gaps: list(accumulate(gaps)))


def wait_for(admission: Admission, now: float) -> int:
    """Return the seconds that a call is told to wait, 0 where it is let through."""
    try:
        admission.count(now)
    except RateLimited as error:
        return error.retry_after_s
    return 0


@given(TIMES, st.integers(1, 8))
def test_any_minute_holds_as_many_calls_as_it_may_and_no_more(
    times: list[float], limit: int
) -> None:
    admission = Admission(limit)
    made: list[float] = []
    for now in times:
        recent = [at for at in made if at > now - MINUTE_S]
        wait = wait_for(admission, now)
        assert (wait > 0) is (len(recent) >= limit)
        if wait:
            # When it says so there is room, and a second before there was none.
            due = recent[-limit] + MINUTE_S
            assert wait - 1 <= due - now <= wait
        else:
            made.append(now)


def test_without_a_limit_nothing_is_counted() -> None:
    admission = Admission()
    assert not any(wait_for(admission, 1.0) for _ in range(10_000))


def test_a_refused_call_counts_for_nothing() -> None:
    admission = Admission(2)
    assert [wait_for(admission, now) for now in (0.0, 10.0)] == [0, 0]
    assert [wait_for(admission, now) for now in (20.0, 20.5, 59.9)] == [40, 40, 1]
    assert wait_for(admission, 60.0) == 0
    assert wait_for(admission, 60.0) == 10


def test_the_message_names_the_key_and_the_time() -> None:
    admission = Admission(1)
    admission.count(0.0)
    with pytest.raises(RateLimited) as refused:
        admission.count(59.5)
    assert refused.value.message == (
        "this sandbox has made its 1 call of this minute; try again in 1 second "
        "([network] per_minute sets how many)."
    )
    assert refused.value.key == "network.per_minute"
    assert not refused.value.looks_wrong


def test_a_million_calls_a_minute_cost_no_more_each_than_ten() -> None:
    admission = Admission(1_000_000)
    for number in range(50_000):
        admission.count(number / 500)
    assert len(admission._calls._times) < 2 * 500 * MINUTE_S + 2


@given(TIMES)
def test_a_burst_is_three_hundred_refusals_in_one_minute(times: list[float]) -> None:
    admission, noted = Admission(), list[float]()
    for now in times:
        for _ in range(20):
            noted = [at for at in noted if at > now - MINUTE_S]
            why = admission.refused("evil.test", 443, now)
            noted.append(now)
            assert bool(why) is (len(noted) >= REFUSALS_MOST)
            if why:
                noted.clear()


@given(st.lists(st.tuples(st.floats(0.0, 2.0), st.integers(1, 140)), max_size=280))
def test_many_targets_are_a_hundred_different_ones_in_one_minute(
    tries: list[tuple[float, int]],
) -> None:
    admission, seen, now = Admission(), dict[int, float](), 0.0
    for gap, port in tries:
        now += gap
        seen[port] = now
        recent = [at for at in seen.values() if at > now - MINUTE_S]
        why = admission.refused("evil.test", port, now)
        assert bool(why) is (len(recent) >= TARGETS_MOST), why
        if why:
            assert "different targets" in why
            seen.clear()


def test_a_hundred_targets_one_after_the_other() -> None:
    admission = Admission()
    found = [admission.refused(f"h{n}.test", 443, 1.0) for n in range(TARGETS_MOST)]
    assert found[-1]
    assert not any(found[:-1])


def test_targets_of_the_minute_before_are_over() -> None:
    admission = Admission()
    assert not any(admission.refused("evil.test", port, float(port)) for port in range(1, 1000))


def test_a_request_that_names_no_host_is_no_target() -> None:
    admission = Admission()
    found = [admission.refused("", number, 1.0) for number in range(REFUSALS_MOST)]
    assert "were refused within" in found[-1]
    assert not any(found[:-1])


@pytest.mark.parametrize("host", [*sorted(METADATA_NAMES), "169.254.169.254", "fd00:ec2::254"])
def test_one_call_to_a_metadata_service_is_enough(host: str) -> None:
    why = Admission().refused(host, 80, 1.0)
    assert why.startswith("it called a cloud's metadata service (")
    assert host in why


def test_a_name_that_led_there_is_enough_too() -> None:
    assert "innocent.example:80" in Admission().refused("innocent.example", 80, 1.0, metadata=True)


@pytest.mark.parametrize("host", ["example.com", "169.254.1.1", "10.0.0.1", "metadata.example"])
def test_what_is_no_metadata_service_is_one_refusal_among_others(host: str) -> None:
    assert Admission().refused(host, 80, 1.0) == ""
