"""A format for a tracker that takes plain text."""

from fxminify.repro_templates.formats import Format

TICKET = Format("ticket", "ticket.txt", "ticket.txt.j2", "text", "A ticket for Acme's tracker.", package="acme")
