# Prints all occurrences of cron expressions, except on days whose clocks change and the days next to them.
import json, sys
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo
from croniter import croniter

given = json.load(sys.stdin)


def changes(zone, day):
    """Whether the clocks change around a day."""
    start = datetime(day.year, day.month, day.day, tzinfo=zone) - timedelta(days=1)
    return len({(start + timedelta(hours=hour)).utcoffset() for hour in range(0, 73, 1)}) > 1


answers = []
# The days of each zone, and whether its clocks change around them.
days = {}
for expression, name in given["jobs"]:
    zone = ZoneInfo(name)
    # Local times without a zone: outside clock changes they name one instant.
    begin = datetime.fromtimestamp(given["from"] / 1000, zone).replace(tzinfo=None) - timedelta(seconds=1)
    times = croniter(expression, begin)
    found, known = [], days.setdefault(name, {})
    while True:
        local = times.get_next(datetime)
        instant = int(local.replace(tzinfo=zone).timestamp()) * 1000
        if instant >= given["until"]:
            break
        day = local.date()
        if day not in known:
            known[day] = changes(zone, day)
        if not known[day] and instant >= given["from"]:
            found.append(instant)
    answers.append(found)
json.dump(answers, sys.stdout)
