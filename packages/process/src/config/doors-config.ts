import type { ParseResult } from "@larkline/protocol";
import {
  scheduleEventNames,
  scheduleEvents,
  type ScheduleEvent,
} from "@larkline/protocol/schedule";
import { Type, type Static } from "@larkline/protocol/type";
import { createEnvReader, type Env } from "./environment.ts";

// Ways in besides messages: which of them are open.

const name = Type.String({ pattern: "^[a-z][a-z0-9-]{0,31}$" });
const bot = Type.Optional(name);
const words = Type.String({ minLength: 1, maxLength: 1_000 });

const TriggerInput = Type.Object(
  {
    /** The bot that answers. Default `default`. */
    bot,
    /** The chat that the answer comes to. */
    chat: Type.String({ pattern: "^oc_[A-Za-z0-9]{1,64}$" }),
    /** Default: the agent of that chat. */
    agent: Type.Optional(Type.String({ minLength: 1, maxLength: 40 })),
    /** What is to be done with what comes. */
    task: Type.Optional(words),
    /** Requests a minute. Default 60. */
    perMinute: Type.Optional(Type.Integer({ minimum: 1, maximum: 6_000 })),
  },
  { additionalProperties: false },
);

const MessagesInput = Type.Object(
  {
    /** Callers of the HTTP API that may write to people and chats: names of their keys; `api` is that of `API_TOKEN`. */
    callers: Type.Array(Type.String({ minLength: 1, maxLength: 120 }), {
      minItems: 1,
      maxItems: 100,
    }),
    /** Messages an hour to one person or chat. Default 20. */
    perHour: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000 })),
    /** Hold them back from 22:00 to 08:00 of the person. Default on. */
    quietHours: Type.Optional(Type.Boolean()),
  },
  { additionalProperties: false },
);

const ApprovalInput = Type.Object(
  {
    /** The bot whose app subscribes. Default `default`. */
    bot,
    /** Of the form, as the address of its page in the approval console has it. */
    code: Type.String({ pattern: "^[A-Za-z0-9-]{1,64}$" }),
    /**
     * The chat that the answers come to; the bot acts there. Without it, the person who has to decide gets the
     * answer in their own chat, and calls act as that person.
     */
    chat: Type.Optional(Type.String({ pattern: "^oc_[A-Za-z0-9]{1,64}$" })),
    /** Default: the agent of that chat. */
    agent: Type.Optional(Type.String({ minLength: 1, maxLength: 40 })),
    /** What is to be done. */
    task: Type.Optional(words),
  },
  { additionalProperties: false },
);

const PersonalInput = Type.Object(
  {
    /** What schedules may wait for. */
    events: Type.Array(Type.Enum(scheduleEventNames), {
      minItems: 1,
      maxItems: 10,
      uniqueItems: true,
    }),
    /** Runs of a person an hour that events start. Default 20. */
    perHour: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000 })),
  },
  { additionalProperties: false },
);

/** Each door is shut unless it stands here. */
export const DoorsInput = Type.Object(
  {
    /** `POST /v1/triggers/<name>`, signed with `TRIGGER_SECRET_<NAME>`. */
    triggers: Type.Optional(Type.Record(name, TriggerInput)),
    /** `POST /v1/messages`. */
    messages: Type.Optional(MessagesInput),
    /** What a reaction to an answer says, by type of the emoji, such as `OK` or `Pin`. */
    reactions: Type.Optional(Type.Record(Type.String({ pattern: "^[A-Za-z0-9_]{1,64}$" }), words)),
    /** Answer comments in documents that mention the bot. Default off. */
    comments: Type.Optional(Type.Boolean()),
    /** Work on tasks for which the bot is made responsible. Default off. */
    tasks: Type.Optional(Type.Boolean()),
    /** Approvals of a form start runs: their changes in a chat, or what waits for a person in theirs. */
    approvals: Type.Optional(Type.Record(name, ApprovalInput)),
    /** What happens to a person starts the schedules with which they wait for it. */
    personal: Type.Optional(PersonalInput),
  },
  { additionalProperties: false },
);
type DoorsInput = Static<typeof DoorsInput>;

export interface TriggerDoor {
  readonly bot: string;
  readonly chat: string;
  readonly agent?: string;
  readonly task: string;
  readonly perMinute: number;
}

export interface ApprovalDoor {
  readonly bot: string;
  readonly code: string;
  readonly chat?: string;
  readonly agent?: string;
  readonly task: string;
}

/** Doors with their defaults; undefined and empty: shut. */
export interface DoorsConfig {
  readonly triggers: Readonly<Record<string, TriggerDoor>>;
  readonly messages:
    | {
        readonly callers: readonly string[];
        readonly perHour: number;
        readonly quietHours: boolean;
      }
    | undefined;
  readonly reactions: Readonly<Record<string, string>>;
  readonly comments: boolean;
  readonly tasks: boolean;
  readonly approvals: Readonly<Record<string, ApprovalDoor>>;
  readonly personal:
    | { readonly events: readonly ScheduleEvent[]; readonly perHour: number }
    | undefined;
}

const defaultTask =
  "This has happened. Say what it means for us, or do what your instructions say.";

const defaultApprovalTask =
  "Read this approval, sum it up, and say what is unusual about it. Decide nothing.";

/** `agents`: those that there are, by name. */
export function resolveDoors(
  { doors = {}, bots = {} }: { doors?: DoorsInput; bots?: object },
  agents: object,
): ParseResult<DoorsConfig> {
  const {
    triggers = {},
    messages,
    reactions = {},
    comments = false,
    tasks = false,
    approvals = {},
    personal,
  } = doors;
  const problems: string[] = [];
  const check = (where: string, botName: string, agent: string | undefined): void => {
    if (botName !== "default" && !Object.hasOwn(bots, botName)) {
      problems.push(`${where} names the unknown bot '${botName}'`);
    }
    if (agent !== undefined && !Object.hasOwn(agents, agent)) {
      problems.push(`${where} names the unknown agent '${agent}'`);
    }
  };
  const named = Object.entries(triggers).map(([trigger, input]) => {
    const { bot: botName = "default", agent, task = defaultTask, perMinute = 60, chat } = input;
    check(`doors.triggers.${trigger}`, botName, agent);
    const door: TriggerDoor = {
      bot: botName,
      chat,
      task,
      perMinute,
      ...(agent === undefined ? {} : { agent }),
    };
    return [trigger, door] as const;
  });
  const ofForms = Object.entries(approvals).map(([form, input]) => {
    const { bot: botName = "default", task = defaultApprovalTask, ...facts } = input;
    check(`doors.approvals.${form}`, botName, facts.agent);
    if (facts.agent !== undefined && facts.chat === undefined) {
      problems.push(
        `doors.approvals.${form}.agent needs a chat: elsewhere the bot's own agent answers`,
      );
    }
    return [form, { ...facts, bot: botName, task }] as const;
  });
  if (problems.length > 0) return { ok: false, error: problems.join("; ") };
  return {
    ok: true,
    value: {
      triggers: Object.fromEntries(named),
      messages: messages === undefined ? undefined : { perHour: 20, quietHours: true, ...messages },
      reactions,
      comments,
      tasks,
      approvals: Object.fromEntries(ofForms),
      personal: personal === undefined ? undefined : { perHour: 20, ...personal },
    },
  };
}

/** The variable with the secret of a trigger. */
export function triggerVariable(trigger: string): string {
  return `TRIGGER_SECRET_${trigger.toUpperCase().replaceAll("-", "_")}`;
}

const shortestSecret = 32;

/** Secrets by trigger. Several, with commas between, are all good: so one can be replaced. */
export function readTriggerSecrets(
  env: Env,
  { triggers }: Pick<DoorsConfig, "triggers">,
): ParseResult<ReadonlyMap<string, readonly string[]>> {
  const reader = createEnvReader(env);
  const secrets = Object.keys(triggers).map((trigger) => {
    const variable = triggerVariable(trigger);
    const given = reader.secret(variable, { required: true }).split(",").filter(Boolean);
    if (given.some((secret) => secret.length < shortestSecret)) {
      reader.problem(`${variable} must have ${shortestSecret} characters or more.`);
    }
    return [trigger, given] as const;
  });
  return reader.finish(new Map(secrets));
}

/** A door that is open, and what it needs. */
export interface OpenDoor {
  name: "triggers" | "messages" | "reactions" | "comments" | "tasks" | "approvals" | "personal";
  events: readonly string[];
  /** Permissions of the app that it needs besides those of every bot. */
  scopes: readonly string[];
  /** Permissions of people that it needs; the app must have them, too. */
  personScopes?: readonly string[];
  /** What is open, for people who look. */
  what: string;
}

/** What the app of a bot has to subscribe itself to for the doors that are open. */
export function subscriptionsOf(
  { tasks, approvals }: DoorsConfig,
  ofBot: string,
): ("tasks" | `approval:${string}`)[] {
  const codes = Object.values(approvals).flatMap((one) => (one.bot === ofBot ? [one.code] : []));
  return [
    ...(tasks ? (["tasks"] as const) : []),
    ...[...new Set(codes)].map((code) => `approval:${code}` as const),
  ];
}

/** The doors that the configuration has opened. */
export function openDoors(config: DoorsConfig): OpenDoor[] {
  const { triggers, messages, reactions, comments, tasks, approvals, personal } = config;
  const doors: OpenDoor[] = [];
  const names = Object.keys(triggers);
  if (names.length > 0) {
    doors.push({
      name: "triggers",
      events: [],
      scopes: [],
      what: `POST /v1/triggers/${names.join(", ")}`,
    });
  }
  if (messages !== undefined) {
    doors.push({ name: "messages", events: [], scopes: [], what: `POST /v1/messages` });
  }
  const emoji = Object.keys(reactions);
  if (emoji.length > 0) {
    doors.push({
      name: "reactions",
      events: ["im.message.reaction.created_v1"],
      scopes: [],
      what: emoji.join(", "),
    });
  }
  if (comments) {
    doors.push({
      name: "comments",
      events: ["drive.notice.comment_add_v1"],
      scopes: ["docs:document.comment:read", "docs:document.comment:create"],
      what: "documents",
    });
  }
  if (tasks) {
    doors.push({
      name: "tasks",
      events: ["task.task.update_user_access_v2"],
      scopes: ["task:task:read", "task:task:write", "task:comment:read", "task:comment:write"],
      what: "tasks of the bot",
    });
  }
  const forms = Object.keys(approvals);
  if (forms.length > 0) {
    doors.push({
      name: "approvals",
      events: ["approval_instance", "approval_task"],
      scopes: ["approval:approval:readonly"],
      what: forms.join(", "),
    });
  }
  if (personal !== undefined) {
    const { events } = personal;
    doors.push({
      name: "personal",
      events: events.map((on) => scheduleEvents[on].type),
      scopes: [],
      personScopes: [...new Set(events.flatMap((on) => scheduleEvents[on].scopes))],
      what: events.join(", "),
    });
  }
  return doors;
}
