import { sessionKeyOf } from "@larkline/agent/messages";
import {
  changedSchedule,
  equalOf,
  newSchedule,
  nextTimes,
  scheduleSessionId,
  wishFields,
} from "@larkline/agent/schedules";
import { agentNamed } from "@larkline/process/config";
import { apiApp, jsonParserOf, turnIdOf } from "@larkline/protocol";
import { withDeadline } from "@larkline/protocol/clock";
import { ScheduleLogEntry, ScheduleTiming } from "@larkline/protocol/schedule";
import { Type, type Static } from "@larkline/protocol/type";
import { ApiError } from "@larkline/protocol/views/run-api";
import type { StoredSchedule } from "@larkline/store";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { bodyText } from "./api-access.ts";
import { decisionDeadlineMs } from "./bot.ts";
import type { Operation } from "./openapi.ts";
import { actOn, runNow } from "./schedules.ts";
import type { Services } from "./services.ts";

// Schedules for clients of the HTTP API: each caller has their own, which run in sessions of that caller.

const { title, task, zone, missed } = wishFields;
const timing = {
  /**
   * The schedule runs once: after this ISO 8601 duration, or at this time on the clock of `zone`.
   */
  after: wishFields.after,
  at: wishFields.at,
  /** The schedule repeats in steps of this duration. */
  every: wishFields.every,
  /** Five cron fields on the clock of `zone`. */
  cron: wishFields.cron,
};

/** Body of `POST /v1/schedules`, with one of `after`, `at`, `every` and `cron`. */
const ScheduleRequest = Type.Object(
  {
    title: Type.String({ minLength: 1, maxLength: 100 }),
    task: Type.String({ minLength: 1, maxLength: 1_000 }),
    ...timing,
    zone,
    missed,
    agent: Type.Optional(Type.String({ minLength: 1, maxLength: 40 })),
    language: Type.Optional(Type.Enum(["zh", "en"])),
  },
  { additionalProperties: false },
);
const parseRequest = jsonParserOf(ScheduleRequest);

/** Body of `PATCH /v1/schedules/<id>`: what is to be different. */
const ScheduleChange = Type.Object(
  { title, task, ...timing, zone, missed, state: Type.Optional(Type.Enum(["active", "paused"])) },
  { additionalProperties: false },
);
const parseChange = jsonParserOf(ScheduleChange);

const instants = Type.Array(Type.Integer());

/** A schedule; times are epoch ms. */
const ApiSchedule = Type.Object({
  id: Type.String(),
  title: Type.String(),
  task: Type.String(),
  timing: ScheduleTiming,
  zone: Type.String(),
  missed: Type.Enum(["skip", "late", "all"]),
  agent: Type.String(),
  state: Type.Enum(["active", "paused", "done"]),
  /** Why it is paused, where no caller has done that. */
  why: Type.Union([Type.String(), Type.Null()]),
  /** The next three times. */
  next: instants,
  /** Its runs are runs of this session. */
  session_id: Type.String(),
  created_at: Type.Integer(),
  /** What became of the last times at which it was due, the newest first. */
  log: Type.Optional(Type.Array(ScheduleLogEntry)),
});
type ApiSchedule = Static<typeof ApiSchedule>;

const ApiSchedules = Type.Object({ schedules: Type.Array(ApiSchedule) });

/** Answer to `POST /v1/schedules/<id>/run`. */
const ScheduleStarted = Type.Object({ run_id: Type.String(), session_id: Type.String() });

interface ScheduleRoute {
  Params: { id?: string };
}

/** Adds schedules. Needs a scope that only callers of the API reach. */
export function registerScheduleRoutes(scope: FastifyInstance, services: Services): void {
  const route = (method: "GET" | "POST" | "PATCH" | "DELETE", url: string, does: Does): void => {
    const { handle, ...operation } = does;
    scope.route<ScheduleRoute>({
      method,
      url,
      config: { operation },
      handler: async (request, reply) => await handled(services, handle, request, reply),
    });
  };
  route("GET", "/v1/schedules", {
    handle: list,
    about: {
      en: "Lists what runs later for the caller; what is due first comes first.",
      zh: "列出调用者的定时任务，最先到期的排在最前。",
    },
    answers: { 200: ApiSchedules },
  });
  route("POST", "/v1/schedules", {
    handle: make,
    about: {
      en: "Makes a schedule, with one of `after`, `at`, `every` and `cron`. 200 with the one that does the same at the same times, if there is one.",
      zh: "创建定时任务，`after`、`at`、`every`、`cron` 四选一。已有相同的任务时以 200 返回该任务。",
    },
    body: ScheduleRequest,
    answers: { 200: ApiSchedule, 201: ApiSchedule, 400: ApiError, 409: ApiError, 413: ApiError },
  });
  route("GET", "/v1/schedules/:id", {
    handle: show,
    about: {
      en: "Shows a schedule of the caller and what became of its last times.",
      zh: "查看调用者的一个定时任务及其最近到期的结果。",
    },
    answers: { 200: ApiSchedule, 404: ApiError },
  });
  route("PATCH", "/v1/schedules/:id", {
    handle: change,
    about: {
      en: "Changes, pauses or resumes a schedule of the caller.",
      zh: "修改、暂停或恢复调用者的一个定时任务。",
    },
    body: ScheduleChange,
    answers: { 200: ApiSchedule, 400: ApiError, 404: ApiError, 409: ApiError, 413: ApiError },
  });
  route("DELETE", "/v1/schedules/:id", {
    handle: remove,
    about: { en: "Deletes a schedule of the caller.", zh: "删除调用者的一个定时任务。" },
    answers: { 204: "empty", 404: ApiError },
  });
  route("POST", "/v1/schedules/:id/run", {
    handle: run,
    about: { en: "Runs a schedule of the caller now.", zh: "立即运行调用者的一个定时任务。" },
    answers: { 202: ScheduleStarted, 404: ApiError, 409: ApiError },
  });
}

type Does = Operation & { handle: Handler };

interface Answer {
  status: 200 | 201 | 202 | 204 | 400 | 404 | 409;
  body?: unknown;
}

type Handler = (services: Services, asked: Asked) => Promise<Answer>;

interface Asked {
  caller: string;
  id: string;
  /** The text of the body; undefined where it is not UTF-8. */
  body: string | undefined;
}

async function handled(
  services: Services,
  handle: Handler,
  { caller, params, body }: FastifyRequest<ScheduleRoute>,
  reply: FastifyReply,
) {
  const { clock, log } = services;
  try {
    const asked = { caller, id: params.id ?? "", body: bodyText(body) };
    const answer = await withDeadline(clock, handle(services, asked), decisionDeadlineMs);
    return await reply.code(answer.status).send(answer.body);
  } catch (error) {
    log.error({ error, caller }, "schedules could not be reached");
    return await reply.code(503).header("retry-after", "1").send({ error: "try again" });
  }
}

function wrong(error: string): Answer {
  return { status: 400, body: { error } };
}

const unknown: Answer = { status: 404, body: { error: "there is no such schedule" } };
const moved: Answer = {
  status: 409,
  body: { error: "it has changed meanwhile", code: "conflict" },
};

async function list(services: Services, { caller }: Asked): Promise<Answer> {
  const own = await services.schedules.ofPerson(apiApp, caller);
  return { status: 200, body: { schedules: own.map((one) => shown(services, one)) } };
}

async function make(services: Services, { caller, body }: Asked): Promise<Answer> {
  const { schedules, settings, clock, random } = services;
  const parsed = parseRequest(body ?? "");
  if (!parsed.ok) return wrong(parsed.error);
  const { agent: name = "default", language, ...wish } = parsed.value;
  const agent = agentNamed(settings, name);
  if (agent?.abilities["schedules"] !== true) {
    return wrong(`agent: '${name}' may not do things later (agents.${name}.schedules)`);
  }
  const nowMs = clock.now();
  const of = {
    id: random.uuid().replaceAll("-", "").slice(0, 16),
    app: apiApp,
    owner: { id: caller },
    chatId: caller,
    chatType: "api",
    ...(name === "default" ? {} : { agent: name }),
    language: language ?? agent.defaultLanguage,
    createdAtMs: nowMs,
  } as const;
  const zoneName = settings.budgets.timeZone;
  const made = newSchedule(wish, of, { zone: zoneName, nowMs, fromMs: nowMs });
  if ("problem" in made) return wrong(made.problem);
  const equal = equalOf(await schedules.ofPerson(apiApp, caller), made.schedule);
  if (equal !== undefined) return { status: 200, body: shown(services, equal) };
  const added = await schedules.add(made.schedule, made);
  return added === "full"
    ? { status: 409, body: { error: "a caller may have 20 schedules", code: "full" } }
    : { status: 201, body: shown(services, made) };
}

async function show(services: Services, asked: Asked): Promise<Answer> {
  const found = await theirs(services, asked);
  if (found === undefined) return unknown;
  const log = await services.schedules.log(asked.id);
  return { status: 200, body: { ...shown(services, found), log } };
}

async function change(services: Services, asked: Asked): Promise<Answer> {
  const { schedules, clock } = services;
  const parsed = parseChange(asked.body ?? "");
  if (!parsed.ok) return wrong(parsed.error);
  const found = await theirs(services, asked);
  if (found === undefined || found.state === "done") return unknown;
  const nowMs = clock.now();
  const next = changedSchedule(found, parsed.value, { nowMs, fromMs: nowMs });
  if ("problem" in next) return wrong(next.problem);
  return (await schedules.change({ ...found, schedule: next.schedule }, next))
    ? { status: 200, body: shown(services, next) }
    : moved;
}

async function remove(services: Services, asked: Asked): Promise<Answer> {
  const found = await theirs(services, asked);
  if (found === undefined) return unknown;
  return (await actOn(services, found, "delete")) === "delete" ? { status: 204 } : unknown;
}

async function run(services: Services, asked: Asked): Promise<Answer> {
  const found = await theirs(services, asked);
  if (found === undefined || found.state === "done") return unknown;
  const seq = await runNow(services, found.schedule);
  if (seq === undefined) {
    return { status: 409, body: { error: "its runs before are not done yet", code: "busy" } };
  }
  const id = scheduleSessionId(asked.id);
  const run_id = turnIdOf(sessionKeyOf(apiApp, id), seq);
  return { status: 202, body: { run_id, session_id: id } };
}

/** The caller's schedule of an id; a caller does not learn of those of others. */
async function theirs(
  { schedules }: Services,
  { id, caller }: Asked,
): Promise<StoredSchedule | undefined> {
  const found = /^[0-9a-f]{16}$/.test(id) ? await schedules.read(id) : undefined;
  const isTheirs = found?.schedule.app === apiApp && found.schedule.owner.id === caller;
  return isTheirs ? found : undefined;
}

/** Times that are shown. */
const shownTimes = 3;

function shown(
  { clock }: Services,
  { schedule, state, dueMs, ...rest }: Pick<StoredSchedule, "schedule" | "state" | "dueMs" | "why">,
): ApiSchedule {
  const { id, timing: when, zone: zoneName, agent = "default", createdAtMs } = schedule;
  const later = nextTimes(when, zoneName, Math.max(dueMs, clock.now()), shownTimes - 1);
  return {
    id,
    title: schedule.title,
    task: schedule.task,
    timing: when,
    zone: zoneName,
    missed: schedule.missed,
    agent,
    state,
    why: rest.why ?? null,
    next: state === "active" ? [dueMs, ...later] : [],
    session_id: scheduleSessionId(id),
    created_at: createdAtMs,
  };
}
