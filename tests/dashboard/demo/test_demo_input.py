from __future__ import annotations

from itertools import islice

from dashboard.demo.input import read_flights, read_planes


def test_the_input_has_every_flight_of_2013_in_order() -> None:
    flights = list(read_flights())
    assert len(flights) == 336_776
    assert flights[0] == {
        "time_hour": "2013-01-01T10:00:00Z",
        "carrier": "UA",
        "tailnum": "N14228",
        "origin": "EWR",
        "dest": "IAH",
        "flight": 1545,
        "air_time": 227,
        "distance": 1400,
    }


def test_unknown_values_are_none() -> None:
    assert any(flight["air_time"] is None for flight in islice(read_flights(), 1000))


def test_aircraft_are_found_by_their_tail_number() -> None:
    planes = read_planes()
    assert len(planes) == 3322
    assert planes["N10156"] == {"tailnum": "N10156", "manufacturer": "EMBRAER", "model": "EMB-145XR", "seats": 55}
