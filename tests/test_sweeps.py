"""What a short run leaves out is a member of a sweep, and marked."""

from tests.sweeps import thinned


def test_one_member_in_several_always_runs():
    members = [(i, str(i)) for i in range(7)]
    found = thinned(members, 3, first=1)
    assert [found[1], found[4]] == [members[1], members[4]]
    others = [found[i] for i in (0, 2, 3, 5, 6)]
    assert [x.values for x in others] == [members[i] for i in (0, 2, 3, 5, 6)]
    assert {mark.name for x in others for mark in x.marks} == {"long"}


def test_members_need_not_be_tuples():
    first, second = thinned(["a", "b"], 2)
    assert (first, second.values) == ("a", ("b",))
