"""A list of rows by key: newest first, older and newer pages, nothing counted, nothing skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList

from catbird_django.admin.markup import grouped
from catbird_django.monitoring.figures import estimated_count
from catbird_django.monitoring.paging import NEWER_THAN, OLDER_THAN, BadPositionError, Position, read_page

if TYPE_CHECKING:
    from django.db.models import Model, QuerySet
    from django.db.models.expressions import Combinable
    from django.http import HttpRequest


class KeysetChangeList(ChangeList):
    """The admin's list, with its count and its numbered pages replaced."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Model]:
        self.position = self._take_position()
        return super().get_queryset(request, exclude_parameters)

    def _take_position(self) -> Position:
        """Read where the page begins and forget it, so that the links of filters and search begin at the newest."""
        try:
            position = Position.from_parameters(self.params)
        except BadPositionError as error:
            raise IncorrectLookupParameters from error
        for name in (OLDER_THAN, NEWER_THAN):
            self.params.pop(name, None)
            self.filter_params.pop(name, None)
        return position

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Model]) -> list[str | Combinable]:
        """By key, whatever the address asks for: any other order sorts the table."""
        return ["-pk"]

    def get_results(self, request: HttpRequest) -> None:
        self.page = read_page(self.queryset, self.position, size=self.list_per_page, reach=self.reach())
        self.result_list = self.page.rows
        self.result_count = len(self.page.rows)
        # Equal, so that the search form does not show the length of a page as the number of results.
        self.full_result_count = self.result_count
        self.show_full_result_count = False
        self.show_admin_actions = bool(self.page.rows)
        self.can_show_all = False
        self.multi_page = False

    def reach(self) -> int | None:
        """How many rows a page may look at; None for all, where an index finds what is asked for."""
        return None

    @property
    def is_filtered(self) -> bool:
        return bool(self.query or self.has_active_filters)

    # For the template.

    @property
    def newest_url(self) -> str:
        return self.get_query_string()

    @property
    def newer_url(self) -> str | None:
        return self._url(self.page.newer)

    @property
    def older_url(self) -> str | None:
        return self._url(self.page.older)

    def _url(self, position: Position | None) -> str | None:
        return None if position is None else self.get_query_string(dict(position.parameters()))

    @property
    def is_whole(self) -> bool:
        """Does this page show everything there is?"""
        return self.page.newer is None and self.page.older is None

    @property
    def about_text(self) -> str | None:
        """About how many rows there are without any filter, if known."""
        count = estimated_count(self.root_queryset)
        return grouped(count) if count else None

    @property
    def reach_text(self) -> str:
        return grouped(self.reach() or 0)
