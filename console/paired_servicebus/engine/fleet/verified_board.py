"""A board whose orders are verified as they are read: each once, off the event loop, before the rules see them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from paired_servicebus.core.fleet.fleet_documents import Board, Document, Order, Posted
from paired_servicebus.core.fleet.fleet_events import Clean
from paired_servicebus.engine.fleet.board_port import Cleaned, FleetBoard
from paired_servicebus.engine.fleet.current_signers import CurrentSigners

FEW: Final = 5
"""Orders that are verified on the event loop: 0.1 ms each."""


class VerifiedBoard:
    """A FleetBoard that adds the signer to each order. signers: the file of operators, read before the orders are."""

    def __init__(self, board: FleetBoard, signers: CurrentSigners) -> None:
        self._board, self._signers = board, signers

    async def read(self, board: Board, since: int, most: int) -> tuple[Sequence[Posted], bool]:
        """Read posts as the board does, with the signers of orders."""
        posts, is_end = await self._board.read(board, since, most)
        if board is Board.ORDERS:
            await self._signers.refresh()
        count = sum(isinstance(post.document, Order) for post in posts)
        if not count:
            return posts, is_end
        return (self._all(posts) if count <= FEW else await asyncio.to_thread(self._all, posts)), is_end

    def _all(self, posts: Sequence[Posted]) -> list[Posted]:
        return [self._verified(post) for post in posts]

    def _verified(self, post: Posted) -> Posted:
        order = post.document
        if not isinstance(order, Order):
            return post
        return replace(post, signer=self._signers.verify(order, post.enqueued_at))

    async def write(self, document: Document, ttl: float) -> None:
        """Post a document."""
        await self._board.write(document, ttl)

    async def clean(self, wanted: Clean) -> Cleaned:
        """Delete what no longer counts."""
        return await self._board.clean(wanted)

    async def close(self) -> None:
        """Close the connections."""
        await self._board.close()
