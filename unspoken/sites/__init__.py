"""A study across machines, from each side: `serve` (coordinator), `join` (party) and `assist` (helper).

Each makes a role from its own copy of the study, a store on disk, and a connection. Nothing that one of them runs comes
from another.
"""

from __future__ import annotations

from unspoken.engines.network.client import CoordinatorAddress
from unspoken.engines.network.deadlines import Deadlines, Events
from unspoken.engines.network.frames import News
from unspoken.engines.network.participant import Told
from unspoken.engines.network.window import Viewers
from unspoken.report.endings import Joined, Served
from unspoken.sites.joining import Participant, ReadyParty, assist, helper_of, join, prepare
from unspoken.sites.serving import Entrance, conducted, coordinator_of, serve, served_before

__all__ = ["CoordinatorAddress", "Deadlines", "Entrance", "Events", "Joined", "News", "Participant", "ReadyParty"]
__all__ += ["Served", "Told", "Viewers", "assist", "conducted", "coordinator_of", "helper_of", "join", "prepare"]
__all__ += ["serve", "served_before"]
