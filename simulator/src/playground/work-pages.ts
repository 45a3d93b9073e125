import type { FastifyInstance, FastifyReply } from "fastify";
import type { FeishuSimulator } from "../index.ts";

type Shown = Pick<FeishuSimulator, "users" | "work" | "apps">;

/**
 * Plain pages on which one sees what tools have done: documents, tables, calendar and tasks of each person, as
 * that person sees them. They load themselves again.
 */
export function registerWorkPages(server: FastifyInstance, simulator: Shown): void {
  for (const [name, page] of Object.entries(pages)) {
    const path = `/page/${name}`;
    server.get<{ Querystring: { as?: string } }>(path, ({ query: { as } }, reply) =>
      sendPage(reply, simulator, { ...page, path, as }),
    );
  }
  for (const [name, { act }] of Object.entries(pages)) {
    if (act === undefined) continue;
    const path = `/page/${name}`;
    server.post<{ Querystring: { as?: string } }>(path, async ({ query: { as = "" } }, reply) => {
      if (!simulator.users.has(as)) return await reply.code(404).send("?");
      await act.does(simulator, as);
      return await reply.redirect(`${path}?as=${encodeURIComponent(as)}`, 303);
    });
  }
}

/** Invitations are for one hour after the other from here on. */
const firstSlot = Date.parse("2027-01-04T10:00+08:00");

/** Another person invites this one. */
function invited({ users, work }: Shown, openId: string): void {
  const organizer = [...users.keys()].find((id) => id !== openId) ?? openId;
  const { calendar } = work;
  const start = firstSlot + calendar.events.size * 3_600_000;
  const summary = `评审 · Review ${calendar.events.size + 1}`;
  calendar.addEvent({ organizer, summary, start, end: start + 3_600_000, people: [openId] });
}

function mailed({ work: { mail } }: Shown, to: string): void {
  const number = mail.mails.size + 1;
  mail.addMail({
    to,
    from: "eve@example.org",
    subject: `报价 · Offer ${number}`,
    text: "请在周五前回复。 · Please answer by Friday.",
  });
}

/** The person gives the first bot a task. */
async function tasked({ apps, work: { tasks } }: Shown, creator: string): Promise<void> {
  await tasks.giveTask({
    creator,
    summary: `整理周报 · Sum up the week ${tasks.tasks.size + 1}`,
    description: "三句话即可。 · Three sentences are enough.",
    assignees: apps.slice(0, 1).map(({ appId }) => appId),
  });
}

/** A meeting of all people has just ended, and its minutes are ready. */
async function holdMeeting({ users, work }: Shown, organizer: string): Promise<void> {
  const { meetings } = work;
  const name = users.get(organizer)?.name ?? organizer;
  await meetings.holdMeeting({
    topic: `周会 · Weekly meeting ${meetings.meetings.size + 1}`,
    organizer,
    participants: [...users.keys()],
    summary: "大家决定下周发布。 · All agreed to launch next week.",
    todos: [{ content: `${name}: 写发布说明 · Write the release notes`, assignees: [organizer] }],
  });
}

const pages: Readonly<Record<string, Pick<PageFacts, "title" | "list" | "act">>> = {
  calendar: {
    title: "日历 · Calendar",
    list: eventsOf,
    act: { text: "收到邀请 · Get an invitation", does: invited },
  },
  tasks: {
    title: "任务 · Tasks",
    list: tasksOf,
    act: { text: "交给机器人一个任务 · Give the bot a task", does: tasked },
  },
  documents: { title: "文档 · Documents", list: documentsOf },
  tables: { title: "多维表格 · Bases", list: tablesOf },
  sheets: { title: "电子表格 · Spreadsheets", list: sheetsOf },
  files: { title: "云空间 · Drive", list: filesOf },
  mails: {
    title: "邮件 · Mails",
    list: mailsOf,
    act: { text: "收到邮件 · Get a mail", does: mailed },
  },
  approvals: { title: "审批 · Approvals", list: approvalsOf },
  meetings: {
    title: "会议 · Meetings",
    list: meetingsOf,
    act: {
      text: "开一个会并结束，生成妙记 · Hold a meeting that ends now, with minutes",
      does: holdMeeting,
    },
  },
};

interface PageFacts {
  title: string;
  path: string;
  /** Open id of the person whose view it is; default the first. */
  as: string | undefined;
  list: (simulator: Shown, openId: string) => string[];
  /** What the button of the page says and does. */
  act?: { text: string; does: (simulator: Shown, openId: string) => void | Promise<void> };
}

function sendPage(
  reply: FastifyReply,
  simulator: Shown,
  { title, path, as, list, act }: PageFacts,
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
  const others = Object.entries(pages).map(
    ([name, page]) =>
      `<a href="/page/${name}?as=${encodeURIComponent(person.openId)}">${page.title}</a>`,
  );
  const items = list(simulator, person.openId).map((item) => `<li>${item}</li>`);
  const body = items.length === 0 ? "<p>无 · None</p>" : `<ul>${items.join("")}</ul>`;
  const address = `${path}?as=${encodeURIComponent(person.openId)}`;
  const button =
    act === undefined
      ? ""
      : `<form method="post" action="${address}"><button>${act.text}</button></form>`;
  return reply
    .type("text/html; charset=utf-8")
    .send(
      `<!doctype html><html lang="zh"><head><meta charset="utf-8"><meta http-equiv="refresh" content="3"><meta name="viewport" content="width=device-width">` +
        `<title>${title}</title><link rel="stylesheet" href="/page/style.css"></head><body class="plain"><main>` +
        `<nav>${others.join(" ")}</nav><h1>${title}</h1><p>${links.join(" ")}</p>${button}${body}</main></body></html>`,
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

function rowOf(cells: readonly string[], tag: "th" | "td"): string {
  return `<tr>${cells.map((cell) => `<${tag}>${escaped(cell)}</${tag}>`).join("")}</tr>`;
}

/** Spreadsheets that this person may see. */
function sheetsOf({ work }: Shown, openId: string): string[] {
  return [...work.sheets.spreadsheets.values()]
    .filter(({ token }) => work.may(openId, token))
    .flatMap(({ title, sheets }) =>
      sheets.map((sheet) => {
        const rows = sheet.rows.map((row) => rowOf([...row].map(cellText), "td"));
        return `<h2>${escaped(`${title} / ${sheet.title}`)}</h2><table>${rows.join("")}</table>`;
      }),
    );
}

/** Files and folders that this person may see, with the folder in which they lie. */
function filesOf({ users, work }: Shown, openId: string): string[] {
  const { files } = work.drive;
  return [...files.values()]
    .filter(({ token }) => work.may(openId, token))
    .map(({ name, type, folder, owner }) => {
      const place = folder === "" ? "" : `${files.get(folder)?.name ?? folder} / `;
      const sign = type === "folder" ? "📁" : "📄";
      return escaped(`${sign} ${place}${name} (${users.get(owner)?.name ?? owner})`);
    });
}

/** The mailbox of this person, the newest mail first, and drafts behind. */
function mailsOf({ work }: Shown, openId: string): string[] {
  const mails = [...work.mail.mails.values()].filter(({ owner }) => owner === openId).toReversed();
  const drafts = [...work.mail.drafts.values()].filter(
    ({ owner, messageId }) => owner === openId && messageId === undefined,
  );
  return [
    ...mails.map(({ folder, from, to, subject, text }) =>
      escaped(`${folder === "SENT" ? `→ ${to.join(", ")}` : `← ${from}`} ${subject}: ${text}`),
    ),
    ...drafts.map(({ to, subject, text }) => escaped(`✎ ${to.join(", ")} ${subject}: ${text}`)),
  ];
}

const decisions = { PENDING: "…", APPROVED: "✓", REJECTED: "✗" } as const;

/** Approvals that this person has asked for or decides. */
function approvalsOf({ users, work }: Shown, openId: string): string[] {
  return [...work.approvals.approvals.values()]
    .filter(
      ({ initiator, tasks }) =>
        initiator === openId || tasks.some(({ approver }) => approver === openId),
    )
    .toReversed()
    .map(({ name, initiator, form, tasks, comments }) => {
      const fields = form.map((field) => `${field.name}: ${field.value}`).join(", ");
      const people = tasks.map(
        ({ approver, status }) => `${users.get(approver)?.name ?? approver} ${decisions[status]}`,
      );
      const said = comments.map(({ text }) => `💬 ${text}`).join(" ");
      const who = users.get(initiator)?.name ?? initiator;
      return escaped(`${name} (${who}) ${fields} ${people.join(", ")} ${said}`);
    });
}

/** Meetings and minutes of this person, the newest first. */
function meetingsOf({ users, work }: Shown, openId: string): string[] {
  const nameOf = (id: string) => users.get(id)?.name ?? id;
  const { meetings, minutes } = work.meetings;
  const held = [...meetings.values()]
    .filter(({ organizer, participants }) => [organizer, ...participants].includes(openId))
    .map(
      ({ topic, organizer, end }) =>
        `📹 ${topic} (${nameOf(organizer)}) ${timeIn(end / 1_000, "Asia/Shanghai")}`,
    );
  const written = [...minutes.values()]
    .filter(({ owner, participants }) => [owner, ...participants].includes(openId))
    .map(
      ({ title, summary, todos }) =>
        `📝 ${title}: ${summary} ${todos.map(({ content }) => `☐ ${content}`).join(" ")}`,
    );
  return [...held.toReversed(), ...written.toReversed()].map(escaped);
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
