"""The base of our pages: they show rows, and let nobody add, change or delete one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.options import ShowFacets
from django.db.models import Model
from django.utils.text import capfirst

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.http.response import HttpResponse

    ModelAdmin = admin.ModelAdmin[Model]
else:
    ModelAdmin = admin.ModelAdmin


class ReadOnlyAdmin(ModelAdmin):
    """Rows to look at. Rows are written by SQL functions only, never by a form."""

    actions: Any = None
    list_per_page = 50
    show_facets = ShowFacets.NEVER  # they count
    show_full_result_count = False
    sortable_by = ()
    change_form_template = "admin/catbird/read_only_form.html"

    class Media:
        css = {"all": ["catbird/admin.css"]}

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Allow our filters only: by default any column can be guessed at from the address, payloads too."""
        return lookup in {getattr(choice, "parameter_name", None) for choice in self.list_filter}

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        title = {"title": capfirst(self.opts.verbose_name_plural)}
        return super().changelist_view(request, {**title, **(extra_context or {})})

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Say which row it is, not what the form could do."""
        title = f"{capfirst(self.opts.verbose_name)} {context['original']}"
        return super().render_change_form(request, {**context, "title": title, "subtitle": None}, *args, **kwargs)
