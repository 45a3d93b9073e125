import type { FastifyInstance, FastifyReply } from "fastify";
import type { FeishuSimulator } from "../index.ts";

type Shown = Pick<FeishuSimulator, "users" | "work">;

/**
 * Plain pages on which one sees what tools have done: documents, tables, calendar and tasks of each person, as
 * that person sees them. They load themselves again.
 */
export function registerWorkPages(server: FastifyInstance, simulator: Shown): void {
  server.get<{ Querystring: { as?: string } }>("/page/calendar", (request, reply) =>
    sendPage(reply, simulator, {
      title: "日历 · Calendar",
      path: "/page/calendar",
      as: request.query.as,
      list: eventsOf,
    }),
  );
  server.get<{ Querystring: { as?: string } }>("/page/tasks", (request, reply) =>
    sendPage(reply, simulator, {
      title: "任务 · Tasks",
      path: "/page/tasks",
      as: request.query.as,
      list: tasksOf,
    }),
  );
  server.get<{ Querystring: { as?: string } }>("/page/documents", (request, reply) =>
    sendPage(reply, simulator, {
      title: "文档 · Documents",
      path: "/page/documents",
      as: request.query.as,
      list: documentsOf,
    }),
  );
  server.get<{ Querystring: { as?: string } }>("/page/tables", (request, reply) =>
    sendPage(reply, simulator, {
      title: "多维表格 · Bases",
      path: "/page/tables",
      as: request.query.as,
      list: tablesOf,
    }),
  );
}

interface PageFacts {
  title: string;
  path: string;
  /** Open id of the person whose view it is; default the first. */
  as: string | undefined;
  list: (simulator: Shown, openId: string) => string[];
}

function sendPage(
  reply: FastifyReply,
  simulator: Shown,
  { title, path, as, list }: PageFacts,
): FastifyReply {
  const people = [...simulator.users.values()];
  const person = as === undefined ? people[0] : simulator.users.get(as);
  if (person === undefined) {
    return reply.code(404).type("text/plain; charset=utf-8").send("没有此人 · No such person");
  }
  const links = people.map(
    ({ openId, name }) =>
      `<a href="${path}?as=${encodeURIComponent(openId)}">${openId === person.openId ? "●" : "○"} ${escaped(name)}</a>`,
  );
  const items = list(simulator, person.openId).map((item) => `<li>${item}</li>`);
  const body = items.length === 0 ? "<p>无 · None</p>" : `<ul>${items.join("")}</ul>`;
  return reply
    .type("text/html; charset=utf-8")
    .send(
      `<!doctype html><html lang="zh"><head><meta charset="utf-8"><meta http-equiv="refresh" content="3">` +
        `<title>${title}</title><link rel="stylesheet" href="/page/style.css"></head><body><main>` +
        `<h1>${title}</h1><p>${links.join(" ")}</p>${body}</main></body></html>`,
    );
}

const rsvps: Readonly<Record<string, string>> = {
  accept: "✓",
  decline: "✗",
  tentative: "?",
  needs_action: "…",
};

/** Events of this person by time. */
function eventsOf({ users, work }: Shown, openId: string): string[] {
  const { events, rooms } = work.calendar;
  return [...events.values()]
    .filter(
      ({ organizer, attendees }) =>
        organizer === openId || attendees.some(({ id }) => id === openId),
    )
    .toSorted((left, right) => left.start - right.start)
    .map(({ summary, start, end, timeZone, organizer, attendees, cancelled }) => {
      const guests = attendees.map(
        ({ kind, id, rsvp }) =>
          `${(kind === "resource" ? rooms : users).get(id)?.name ?? id} ${rsvps[rsvp] ?? rsvp}`,
      );
      const words = [
        `${timeIn(start, timeZone)} – ${timeIn(end, timeZone)}`,
        summary,
        `(${users.get(organizer)?.name ?? organizer})`,
        guests.join(", "),
      ];
      const text = escaped(words.join(" "));
      return cancelled ? `<s>${text}</s>` : text;
    });
}

/** Tasks of this person, the newest first. */
function tasksOf({ users, work }: Shown, openId: string): string[] {
  return [...work.tasks.tasks.values()]
    .filter(({ creator, members }) => creator === openId || members.some(({ id }) => id === openId))
    .toReversed()
    .map(({ summary, due, members, completedAt, comments }) => {
      const people = members.map(({ id }) => users.get(id)?.name ?? id).join(", ");
      const until = due === undefined ? "" : `⏰ ${timeIn(due.at / 1_000, "Asia/Shanghai")}`;
      const said = comments
        .map(({ by, content }) => `💬 ${users.get(by)?.name ?? by}: ${content}`)
        .join(" ");
      return escaped(`${completedAt > 0 ? "☑" : "☐"} ${summary} ${people} ${until} ${said}`);
    });
}

/** Documents that this person may see, the latest change first, with their comments. */
function documentsOf({ users, work }: Shown, openId: string): string[] {
  return [...work.docs.documents.values()]
    .filter(({ documentId }) => work.may(openId, documentId))
    .toSorted((left, right) => right.updatedAt - left.updatedAt)
    .map(({ documentId, title, owner, comments }) => {
      const said = comments.flatMap(({ replies }) =>
        replies.map(
          ({ by, text }) => `<p>💬 ${escaped(`${users.get(by)?.name ?? by}: ${text}`)}</p>`,
        ),
      );
      const head = escaped(`${title} (${users.get(owner)?.name ?? owner})`);
      return `<h2>${head}</h2><pre>${escaped(work.docs.markdown(documentId))}</pre>${said.join("")}`;
    });
}

/** Tables of the Bases that this person may see. */
function tablesOf({ work }: Shown, openId: string): string[] {
  return [...work.tables.bases.values()]
    .filter(({ appToken }) => work.may(openId, appToken))
    .flatMap(({ name, tables }) =>
      [...tables.values()].map((table) => {
        const names = table.fields.map(({ field_name }) => field_name);
        const rowOf = (cells: readonly string[], tag: string): string =>
          `<tr>${cells.map((cell) => `<${tag}>${escaped(cell)}</${tag}>`).join("")}</tr>`;
        const rows = table.records.map(({ fields }) =>
          rowOf(
            names.map((field) => cellText(fields[field])),
            "td",
          ),
        );
        return `<h2>${escaped(`${name} / ${table.name}`)}</h2><table>${rowOf(names, "th")}${rows.join("")}</table>`;
      }),
    );
}

function cellText(value: unknown): string {
  if (value === undefined || value === null) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function timeIn(seconds: number, timeZone: string): string {
  return new Date(seconds * 1_000).toLocaleString("sv-SE", {
    timeZone,
    dateStyle: "short",
    timeStyle: "short",
  });
}

function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
}
