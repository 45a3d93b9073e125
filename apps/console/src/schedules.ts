import { timingText } from "@larkline/agent/schedules";
import type { OperatorOrder } from "@larkline/store/operations";
import type { ScheduleLogEntry } from "@larkline/protocol/schedule";
import type { StoredSchedule } from "@larkline/store";
import type { FastifyInstance } from "fastify";
import { facts, html, moment, table, who, type Html } from "./html.ts";
import {
  actionForm,
  answerPage,
  countAction,
  fieldOf,
  order,
  problemPage,
  type Page,
  type View,
} from "./page.ts";
import type { Services } from "./services.ts";
import type { Word } from "./words.ts";

// What agents do later: whose it is, where and when it runs, and what became of its last times. Tasks are not shown:
// they are words of people.

/** Adds the pages of schedules. Operators can pause, resume and delete one. */
export function registerSchedules(server: FastifyInstance, services: Services): void {
  server.get("/schedules", async (request, reply) =>
    answerPage(services, request, reply, async (view) => await listPage(services, view)),
  );
  server.get<{ Params: { id: string } }>("/schedules/:id", async (request, reply) =>
    answerPage(services, request, reply, async (view) =>
      onePage(services, view, request.params.id),
    ),
  );
  server.post("/schedules", async (request, reply) =>
    answerPage(services, request, reply, async (view) => {
      const [schedule, act] = [fieldOf(request, "schedule"), actNamed(fieldOf(request, "do"))];
      if (schedule === undefined || act === undefined) return undefined;
      const words = { done: doneWords[act], nothing: "scheduleGone" } as const;
      const { word, isDone } = await order(services, view, { do: act, schedule }, words);
      if (isDone) countAction(services, act, request.url);
      return { to: "/schedules", note: word };
    }),
  );
}

type Act = Extract<OperatorOrder["act"], { schedule: string }>["do"];

const doneWords: Readonly<Record<Act, Word>> = {
  pause_schedule: "schedulePaused",
  resume_schedule: "scheduleResumed",
  delete_schedule: "scheduleDeleted",
};

function actNamed(text: string | undefined): Act | undefined {
  return (Object.keys(doneWords) as Act[]).find((act) => act === text); // its own keys
}

const maxListed = 200;
/** Lines of the log in the list; the page of one has all. */
const linesListed = 3;

async function listPage(services: Services, view: View): Promise<Page> {
  const { say } = view;
  const { count, schedules } = await services.schedules.newest(maxListed);
  const logs = await Promise.all(
    schedules.map(async ({ schedule }) => await services.schedules.log(schedule.id)),
  );
  const columns = ["schedule", "owner", "chat", "runsAt", "nextTime", "lastTimes"] as const;
  const body = html`${
    count > schedules.length && html`<p class="note">${say("moreSchedules")}</p>`
  }${
    schedules.length === 0
      ? html`<p>${say("noSchedules")}</p>`
      : table({
          caption: say("schedules"),
          columns: [...columns.map(say), ""],
          rows: schedules.map((one, at) => row(view, one, logs[at] ?? [])),
        })
  }`;
  return { title: say("schedules"), body };
}

function row(view: View, one: StoredSchedule, log: readonly ScheduleLogEntry[]) {
  const { schedule } = one;
  return [
    html`<a href="/schedules/${schedule.id}">${schedule.title}</a>`,
    schedule.owner.name ?? who(schedule.owner.id),
    who(schedule.chatId),
    html`${timingText(schedule.timing, schedule.zone, view.language)} (${schedule.zone})`,
    nextOf(view, one),
    html`${log.slice(0, linesListed).map((line) => html`${lineOf(view, line)}<br />`)}`,
    view.visitor?.role === "operator" && buttons(view, one),
  ];
}

function nextOf(view: View, { schedule, state, why, dueMs }: StoredSchedule): Html {
  if (state === "active") {
    return schedule.timing.kind === "event"
      ? html`${view.say("scheduleWaits")}`
      : moment(view, dueMs);
  }
  return html`${view.say(state === "paused" ? "paused" : "scheduleDone")}${
    why !== undefined && html` · ${why}`
  }`;
}

const runWords: Readonly<Record<ScheduleLogEntry["state"], Word>> = {
  started: "runStarted",
  late: "runLate",
  skipped: "runSkipped",
  quiet: "runQuiet",
  busy: "runBusy",
};

function lineOf(view: View, { dueMs, state, count }: ScheduleLogEntry): Html {
  return html`${moment(view, dueMs)}: ${view.say(runWords[state])}${count > 1 && html` × ${count}`}`;
}

function buttons(view: View, { schedule, state }: StoredSchedule): Html {
  const form = (act: Act, label: Word): Html =>
    actionForm(view, { path: "/schedules", label, fields: { schedule: schedule.id, do: act } });
  return html`${state === "active" && form("pause_schedule", "pause")}
  ${state === "paused" && form("resume_schedule", "resume")}
  ${form("delete_schedule", "deleteSchedule")}`;
}

const missedWords = { skip: "missedSkip", late: "missedLate", all: "missedAll" } as const;

async function onePage(services: Services, view: View, id: string): Promise<Page> {
  const { say } = view;
  const found = /^[0-9a-f]{16}$/.test(id) ? await services.schedules.read(id) : undefined;
  if (found === undefined) return problemPage(view, "scheduleGone");
  const { schedule } = found;
  const log = await services.schedules.log(id);
  const body = html`${facts([
    [say("owner"), schedule.owner.name ?? who(schedule.owner.id)],
    [say("chat"), who(schedule.chatId)],
    [say("runsAt"), html`${timingText(schedule.timing, schedule.zone, view.language)}`],
    [say("zone"), schedule.zone],
    [say("nextTime"), nextOf(view, found)],
    [say("missedTimes"), say(missedWords[schedule.missed])],
    [say("madeAt"), moment(view, schedule.createdAtMs)],
  ])}
  ${view.visitor?.role === "operator" && buttons(view, found)}
  ${
    log.length === 0
      ? html`<p>${say("noTimes")}</p>`
      : table({
          caption: say("lastTimes"),
          columns: [say("dueAt"), say("howMany"), say("cameOf"), say("dealtWith")],
          rows: log.map(({ dueMs, untilMs, count, state, atMs }) => [
            html`${moment(view, dueMs)}${untilMs !== undefined && html` – ${moment(view, untilMs)}`}`,
            `${count}`,
            say(runWords[state]),
            moment(view, atMs),
          ]),
        })
  }`;
  return { title: schedule.title, body };
}
