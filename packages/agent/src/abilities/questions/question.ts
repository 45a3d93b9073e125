import type { ParseResult, ReplyLanguage } from "@larkline/protocol";
import type {
  Approval,
  AskedQuestion,
  Deciders,
  AskedForm,
  FormField,
} from "@larkline/protocol/approval";
import type { EventOf } from "@larkline/protocol/event";
import { compileJsonSchema } from "@larkline/protocol/json-schema";
import {
  askPersonName,
  type ToolAnnouncement,
  type ToolOutcome,
  type CallInput,
  type InputRequired,
  type InputResponse,
} from "@larkline/protocol/tool";
import type { CallState } from "@larkline/protocol/turn";
import { Type } from "@larkline/protocol/type";
import type {
  Ability,
  AskedPeople,
  CallFacts,
  DecisionEntry,
  AttemptEnd,
  Decided,
  FurtherQuestion,
} from "../../turn/ability.ts";
import { recordOf } from "../approvals/approvals.ts";
import { oneLine, textHead } from "../../texts/index.ts";
import { languageOfMessage } from "../../turn/messages.ts";
import { withoutWait } from "../../turn/tool-call.ts";

/*
 * Questions to people: the model calls `ask_person`, and what a person answers is the result of the call. A question is
 * an approval of a kind of its own: the same write stores it and suspends the turn, the same cards, expiry and sweeps
 * look after it. No runner sees such a call, and nothing but a person who was asked can answer it.
 */

/** The ability of agents that are configured with `questions: true`. */
export const questions: Ability = {
  name: "questions",
  config: Type.Boolean({
    description:
      "It may ask people with the tool `ask_person`, and waits for their answer. Default: no.",
  }),
  toolNames: [askPersonName],
  tools: ({ settings, people: { roles } }) =>
    settings["questions"] === true ? [toolFor(roles)] : [],
  onCall: (call, facts) => {
    const wanted = wantedQuestion(call.arguments, facts.env.place.people.roles);
    return wanted.ok
      ? { ask: askedQuestion(call, wanted.value, facts) }
      : { ok: false, error: `The arguments do not fit: ${wanted.error}. Nobody was asked.` };
  },
  onDecision: (_call, decision) => questionOutcome(decision),
  needs: () => "question",
};

/** A question, and who may answer it. */
interface PersonQuestion {
  readonly question: AskedQuestion;
  readonly deciders: Deciders;
  /** Which of several questions of one attempt it is. Such a question shows its own words, not the arguments of the call. */
  readonly key?: string;
}

/** What people are asked, and the event that says so before the question is sent. */
export function askedQuestion(
  call: CallState,
  { question, deciders, key }: PersonQuestion,
  facts: CallFacts,
): AskedPeople {
  const { nowMs, place } = facts.env;
  const expiresAtMs = nowMs + place.people.answerMs;
  const asked = { deciders, reason: "", risk: "low", expiresAtMs } as const;
  const which = key === undefined ? {} : { key };
  const record: Approval = {
    ...recordOf(call, { kind: "question", question: asked, ...which }, facts),
    ...(key === undefined ? {} : { arguments: {} }),
    question,
  };
  const requested: EventOf<"input_requested"> = {
    type: "input_requested",
    requestId: record.id,
    callId: call.id,
    question: question.text,
    choices: question.choices,
    expiresAtMs,
  };
  return { record, events: [requested] };
}

const tools = new Map<string, ToolAnnouncement>();

/** The same tool for the same roles. */
function toolFor(roles: readonly string[]): ToolAnnouncement {
  const key = roles.join(" ");
  const known = tools.get(key);
  const spec = { name: askPersonName, description: askDescription, inputSchema: inputFor(roles) };
  const tool: ToolAnnouncement = known ?? {
    spec,
    effect: "idempotent",
    requiresApproval: false,
    risk: "low",
    timeoutMs: 30_000,
  };
  tools.set(key, tool);
  return tool;
}

const askDescription =
  "Asks a person and waits for the answer, for a day at most; the result is {answer, by}. Use it where you cannot go on " +
  "without something that only a person can say, not for what you can find out or may decide yourself. Ask one thing " +
  "at a time, and offer choices where there are a few.";

function inputFor(roles: readonly string[]): Record<string, unknown> {
  const to = {
    type: "string",
    enum: ["requester", ...roles],
    description: "Who is asked: the person you are talking to (default), or everybody of a role.",
  };
  return {
    type: "object",
    properties: {
      question: { type: "string", minLength: 1, maxLength: 1_000 },
      choices: {
        type: "array",
        items: { type: "string", minLength: 1, maxLength: 60 },
        minItems: 2,
        maxItems: 6,
        uniqueItems: true,
        description: "Short answers to choose from, shown as buttons.",
      },
      format: {
        type: "string",
        enum: ["date", "date-time"],
        description:
          "Where the answer is a day or a moment: shown as a picker. Not together with choices.",
      },
      ...(roles.length === 0 ? {} : { to }),
    },
    required: ["question"],
    additionalProperties: false,
  };
}

type Asked = Partial<Pick<AskedQuestion, "choices" | "format">> & { question: string; to?: string };

const checks = new Map<string, (given: unknown) => ParseResult<unknown>>();

/** Reads the arguments of a call of `ask_person`. */
function wantedQuestion(
  given: Readonly<Record<string, unknown>>,
  roles: readonly string[],
): ParseResult<PersonQuestion> {
  const key = roles.join(" ");
  const check = checks.get(key) ?? compileJsonSchema(inputFor(roles));
  checks.set(key, check);
  const checked = check(given);
  if (!checked.ok) return checked;
  const { question, choices = [], format, to = "requester" } = given as Asked; // as the schema says
  const text = question.trim();
  if (text === "" || choices.some((choice) => choice.trim() === "")) {
    return { ok: false, error: "question and choices must have words" };
  }
  if (choices.length > 0 && format !== undefined) {
    return { ok: false, error: "give choices or a format, not both" };
  }
  const isOfRole = to !== "requester";
  return {
    ok: true,
    value: {
      question: { text, choices, ...(format === undefined ? {} : { format }) },
      deciders: {
        requester: !isOfRole,
        people: [],
        roles: isOfRole ? [to] : [],
        fourEyes: false,
        count: 1,
      },
    },
  };
}

/** The answer of a person who does not want to say it. */
const declinedAnswer = JSON.stringify({ action: "decline" });

/** The result of a question that is settled. */
function questionOutcome(entry: DecisionEntry): ToolOutcome {
  const { state, decisions, unchecked = false } = entry;
  if (unchecked) {
    return { ok: false, error: "It could not be checked whether the person who answered may." };
  }
  const given = decisions.find(({ decision }) => decision === "answer");
  if (state === "answered" && given !== undefined) {
    const { note = "", by } = given;
    const said = note === declinedAnswer ? { declined: true } : { answer: note };
    return { ok: true, result: { ...said, by: by.name ?? by.id } };
  }
  if (state === "expired") return { ok: true, result: "nobody answered" };
  if (state === "undeliverable") {
    return { ok: false, error: "Nobody could be asked: the question reached no person." };
  }
  return { ok: false, error: "The question was withdrawn before anybody answered." };
}

/*
 * Questions of MCP servers: a server answers a call with what it has to know first. The attempt is closed then, as one
 * that may be repeated; its requests become questions to the person whose turn it is, one after the other, and the answers go
 * along with the next attempt. What a server writes is shown and never run: its schema becomes a form of ours, and a
 * schema that is none of ours is refused.
 */

/** How often the server of one call may ask. */
const maxRounds = 5;

const maxFields = 10;

/** Most choices and bytes of all fields together: a card of 30 KB has room for them. */
const [maxOptions, maxFormBytes] = [60, 4_000];

/** The ability of every agent whose people can be asked. */
export const serverQuestions: Ability = {
  name: "serverQuestions",
  toolNames: [],
  onOutcome: (call, { outcome }, facts) =>
    outcome.ok || outcome.input === undefined
      ? undefined
      : attemptEnd(serverQuestion(call, outcome.input, facts)),
  onDecision: (call, decision, facts) => serverAnswer(call, decision, facts),
  needs: () => "server-question",
};

function attemptEnd(made: FurtherQuestion | ToolOutcome): AttemptEnd {
  return "ask" in made ? made : { outcome: made };
}

/** Suspends a call until a person has answered the first request of its server; refuses requests that no form can show. */
function serverQuestion(
  call: CallState,
  asked: InputRequired,
  facts: CallFacts,
): FurtherQuestion | ToolOutcome {
  const rounds = (call.input?.rounds ?? 0) + 1;
  if (rounds > maxRounds) return refused(call, asked, `it has asked ${maxRounds} times`);
  const unshown = asked.requests.map(({ key }) => formOf(asked, key)).find(({ ok }) => !ok);
  if (unshown !== undefined && !unshown.ok) return refused(call, asked, unshown.error);
  return nextQuestion({ ...withoutWait(call), input: { asked, responses: {}, rounds } }, facts);
}

/** A server of an older revision has asked in the middle of its work, in a call that may be repeated. */
function refused(
  { effect = "once" }: CallState,
  { server }: InputRequired,
  why: string,
): ToolOutcome {
  const name = oneLine(server, 100);
  const done = effect === "once" ? "It did nothing" : "The call was not completed";
  return {
    ok: false,
    error: `The MCP server ${name} asked for input, and nobody was asked: ${why}. ${done}.`,
  };
}

const withdrawn: ToolOutcome = {
  ok: false,
  error: "The server of this tool asked something first; the call was not completed.",
};

/** The question about the first request that is not answered yet. */
function nextQuestion(call: CallState, facts: CallFacts): FurtherQuestion | ToolOutcome {
  const { turn, env } = facts;
  if (facts.ending === true) return withdrawn;
  const { input } = call;
  const open = input?.asked.requests.find(({ key }) => !Object.hasOwn(input.responses, key));
  if (input === undefined || open === undefined || env.place.people.answerMs === 0) {
    return refused(
      call,
      input?.asked ?? { server: call.name, requests: [] },
      "people cannot be asked here",
    );
  }
  const form = formOf(input.asked, open.key);
  if (!form.ok) return refused(call, input.asked, form.error);
  const deciders = { requester: true, people: [], roles: [], fourEyes: false, count: 1 };
  const question = questionOf(form.value, languageOfMessage(turn.message, env.texts));
  return { ask: askedQuestion(call, { question, deciders, key: open.key }, facts), call };
}

/** What a settled question does to its call: the next question, the next attempt, or its end. */
function serverAnswer(
  call: CallState,
  { state, decisions, approvalId }: DecisionEntry,
  facts: CallFacts,
): Decided | undefined {
  const { input } = call;
  if (input === undefined || call.state !== "waiting_approval" || call.approvalId !== approvalId) {
    return undefined;
  }
  const open = input.asked.requests.find(({ key }) => !Object.hasOwn(input.responses, key));
  const given = decisions.find(({ decision }) => decision === "answer");
  if (state === "expired") return fail("Nobody answered what the server of this tool asked.");
  if (state === "undeliverable") {
    return fail("The question of this tool's server reached no person.");
  }
  if (open === undefined || state !== "answered" || given === undefined) {
    return fail("The question of this tool's server was withdrawn.");
  }
  const form = formOf(input.asked, open.key);
  const read = form.ok ? readFormAnswer(form.value, given.note ?? "") : form;
  if (!read.ok) return fail(`The answer to this tool's server did not fit: ${read.error}.`);
  const responses = { ...input.responses, [open.key]: read.value };
  const next: CallState = { ...withoutWait(call), input: { ...input, responses } };
  const isComplete = input.asked.requests.every(({ key }) => Object.hasOwn(responses, key));
  return isComplete ? { again: next } : nextQuestion(next, facts);
}

function fail(why: string): ToolOutcome {
  return { ok: false, error: `${why} The call was not completed.` };
}

/** What a call brings to its server; undefined where the server has asked nothing. */
export function callInputOf({ input }: Pick<CallState, "input">): CallInput | undefined {
  if (input === undefined) return undefined;
  const { asked, responses } = input;
  return { responses, ...(asked.state === undefined ? {} : { state: asked.state }) };
}

// The form of a request.

const maxLabel = 100;
const [maxMessage, maxQuestion] = [700, 1_000];

/** Names, titles and formats of what people should type into no chat. */
const secretWords =
  /\b(?:pass(?:word|phrase|code)s?|secrets?|tokens?|api ?keys?|credentials?|private ?keys?|pin|cvv|cvc)\b|密码|口令|密钥|验证码/iu;

/** The form of one request; an error where people cannot or should not be asked for that. */
export function formOf({ server, requests }: InputRequired, key: string): ParseResult<AskedForm> {
  const request = requests.find((each) => each.key === key);
  const { type, properties, required = [] } = request?.schema ?? {};
  if (request === undefined || type !== "object" || !isRecord(properties)) {
    return { ok: false, error: "what it asks for is no flat object" };
  }
  const names = Object.keys(properties);
  if (names.length > maxFields) {
    return { ok: false, error: `it asks for more than ${maxFields} fields` };
  }
  const fields: FormField[] = [];
  for (const name of names) {
    const isRequired = Array.isArray(required) && required.includes(name);
    const field = fieldOf(name, properties[name], isRequired);
    if (!field.ok) return field;
    fields.push(field.value);
  }
  const options = fields.reduce((sum, field) => sum + (field.options?.length ?? 0), 0);
  if (options > maxOptions || Buffer.byteLength(JSON.stringify(fields)) > maxFormBytes) {
    return { ok: false, error: "its form is too large for a card" };
  }
  const message = textHead(oneLine(request.message, 4_000), maxMessage);
  return { ok: true, value: { server: oneLine(server, 100), message, fields } };
}

/** `accessToken` and `access_token` as words. */
function wordsOf(name: string): string {
  return name.replaceAll(/([a-z])([A-Z])/g, "$1 $2").replaceAll(/[_-]+/g, " ");
}

const kinds: Readonly<Record<string, FormField["kind"]>> = {
  email: "email",
  uri: "uri",
  date: "date",
  "date-time": "date-time",
};

function fieldOf(name: string, schema: unknown, required: boolean): ParseResult<FormField> {
  const quoted = JSON.stringify(oneLine(name, 60));
  const refuse = (why: string): ParseResult<FormField> => ({
    ok: false,
    error: `its field ${quoted} ${why}`,
  });
  if (!isRecord(schema) || name === "" || name.length > maxLabel || name === "__proto__") {
    return refuse("is no field of a form");
  }
  const { type, title, description: said, format, enum: values, enumNames, oneOf } = schema;
  const label = textHead(oneLine(textOf(title) || name, maxLabel), maxLabel) || "?";
  const hint = oneLine(textOf(said), 300);
  if ([name, label, hint, textOf(format)].some((text) => secretWords.test(wordsOf(text)))) {
    return refuse("asks for a secret, which nobody should write here");
  }
  const known = { name, label, required, ...(hint === "" ? {} : { hint }) };
  if (type === "boolean") return { ok: true, value: { ...known, kind: "boolean" } };
  if (type === "number" || type === "integer") {
    return {
      ok: true,
      value: { ...known, kind: type, ...bounds(schema["minimum"], schema["maximum"]) },
    };
  }
  if (type !== "string") return refuse("is no text, number, choice or yes and no");
  const listed = optionsIn(values, enumNames) ?? optionsOfTitles(oneOf);
  if (listed === undefined && (values !== undefined || oneOf !== undefined)) {
    return refuse("has choices that cannot be shown");
  }
  if (listed !== undefined) {
    return { ok: true, value: { ...known, kind: "choice", options: listed } };
  }
  const kind = kinds[textOf(format)] ?? "text";
  return {
    ok: true,
    value: { ...known, kind, ...bounds(schema["minLength"], schema["maxLength"]) },
  };
}

function bounds(min: unknown, max: unknown): Pick<FormField, "min" | "max"> {
  return {
    ...(typeof min === "number" && Number.isFinite(min) ? { min } : {}),
    ...(typeof max === "number" && Number.isFinite(max) ? { max } : {}),
  };
}

type Options = NonNullable<FormField["options"]>;

function optionsIn(values: unknown, names: unknown): Options | undefined {
  if (!Array.isArray(values)) return undefined;
  const titles: readonly unknown[] = Array.isArray(names) ? names : [];
  return checkedOptions(values.map((value, at) => [value, titles[at] ?? value]));
}

function optionsOfTitles(oneOf: unknown): Options | undefined {
  if (!Array.isArray(oneOf)) return undefined;
  return checkedOptions(
    oneOf.map((each: unknown) =>
      isRecord(each) ? [each["const"], each["title"] ?? each["const"]] : [],
    ),
  );
}

function checkedOptions(pairs: readonly (readonly unknown[])[]): Options | undefined {
  const options = pairs.flatMap(([value, title]) =>
    typeof value === "string" && value !== "" && value.length <= 200
      ? [{ value, label: oneLine(textOf(title) || value, maxLabel) || "?" }]
      : [],
  );
  return options.length === pairs.length && options.length > 0 && options.length <= 50
    ? options
    : undefined;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/**
 * The question in words, for places without forms, and with buttons where the form is one choice.
 */
function questionOf(form: AskedForm, language: ReplyLanguage): AskedQuestion {
  const { server, message, fields } = form;
  const [only] = fields;
  const labels = fields.length === 1 && only !== undefined ? buttonsOf(only, language) : [];
  const listed = fields.map(({ name, label, required }) => {
    const shown = label === name ? name : `${name} (${label})`;
    return required ? `${shown}*` : shown;
  });
  const words =
    language === "zh"
      ? `MCP 服务器「${server}」提问（请勿填写密码）：${message}`
      : `The MCP server "${server}" asks (write no passwords): ${message}`;
  const names = listed.length === 0 || labels.length > 0 ? "" : `\n${listed.join(", ")}`;
  return { text: textHead(`${words}${names}`, maxQuestion), choices: labels, form };
}

/** The buttons of a choice: as many as a question may have, each as long as it may be. */
function buttonsOf(field: FormField, language: ReplyLanguage): string[] {
  const labels =
    field.kind === "boolean"
      ? [...yesNo[language]]
      : (field.options ?? []).map(({ label }) => label);
  const fits =
    labels.length >= 2 && labels.length <= 6 && labels.every((label) => label.length <= 60);
  return fits && new Set(labels).size === labels.length ? labels : [];
}

const yesNo = { en: ["Yes", "No"], zh: ["是", "否"] } as const;

const yesWords: ReadonlySet<string> = new Set(["yes", "true", "是", "y", "1"]);
const noWords: ReadonlySet<string> = new Set(["no", "false", "否", "n", "0"]);

// Answers.

const declineWords: ReadonlySet<string> = new Set(["decline", "拒绝", "/decline"]);

/** An answer as it is stored: the words, the date that they mean, or the answer to a server; an error if it does not fit. */
export function answerToStore(
  { form, format }: Partial<AskedQuestion> = {},
  words: string,
): ParseResult<string> {
  if (form !== undefined) {
    const read = readFormAnswer(form, words);
    return read.ok ? { ok: true, value: JSON.stringify(read.value) } : read;
  }
  if (format === undefined) return { ok: true, value: words };
  const isWithoutZone = format === "date-time" && /\d:\d{2}$/.test(words.trim());
  if (isWithoutZone) return { ok: false, error: `name the time zone, such as ${examples[format]}` };
  const field: FormField = { name: "answer", label: format, kind: format, required: true };
  const read = readFormAnswer({ server: "", message: "", fields: [field] }, words);
  if (!read.ok) return { ok: false, error: `${read.error}; write ${examples[format]}` };
  const { action, content } = read.value;
  return { ok: true, value: action === "accept" ? String(content?.["answer"]) : declinedAnswer };
}

const examples = { date: "2026-12-24", "date-time": "2026-12-24 09:30 +0800" } as const;

/**
 * What a person said to a form: JSON with `action`, the values alone as JSON, or the value of the only field in plain
 * words. Values may be texts; they are checked against the form.
 */
export function readFormAnswer(form: AskedForm, text: string): ParseResult<InputResponse> {
  const words = text.trim();
  const [only] = form.fields;
  const isOption =
    only?.options?.some(({ value, label }) => value === words || label === words) === true;
  if (!isOption && declineWords.has(words.toLowerCase())) {
    return { ok: true, value: { action: "decline" } };
  }
  const parsed = jsonIn(words);
  if (isRecord(parsed)) {
    const { action, content } = parsed;
    const isAction = action === "accept" || action === "decline" || action === "cancel";
    const isWhole = isAction && !form.fields.some(({ name }) => name === "action");
    if (isWhole && action !== "accept") return { ok: true, value: { action: "decline" } };
    return withContent(form, isWhole ? content : parsed);
  }
  if (form.fields.length === 1 && only !== undefined) {
    return withContent(form, { [only.name]: words });
  }
  if (form.fields.length === 0) return { ok: true, value: { action: "accept", content: {} } };
  return {
    ok: false,
    error: `write a JSON object with ${form.fields.map(({ name }) => name).join(", ")}`,
  };
}

function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function withContent({ fields }: AskedForm, given: unknown = {}): ParseResult<InputResponse> {
  if (!isRecord(given)) return { ok: false, error: "it must be an object" };
  const content: Record<string, string | number | boolean> = {};
  const strange = Object.keys(given).find((name) => !fields.some((field) => field.name === name));
  if (strange !== undefined) {
    return { ok: false, error: `${JSON.stringify(oneLine(strange, 60))} is not asked for` };
  }
  for (const field of fields) {
    const value = valueOf(field, given[field.name]);
    if (value === undefined && field.required) {
      return { ok: false, error: `${field.label}: is missing` };
    }
    if (value !== undefined) content[field.name] = value;
  }
  const checked = compileJsonSchema(schemaOf(fields))(content);
  if (!checked.ok) return checked;
  const strayed = fields.find(({ name, kind }) => {
    return (
      kind.startsWith("date") &&
      Object.hasOwn(content, name) &&
      !isInCalendar(String(content[name]).slice(0, 10))
    );
  });
  if (strayed !== undefined) {
    return { ok: false, error: `${strayed.label}: is no day of the calendar` };
  }
  return { ok: true, value: { action: "accept", content } };
}

/** A value as its field has it, where the words can mean one; what they cannot mean is left for the check. */
function valueOf(
  { kind, options = [] }: FormField,
  given: unknown,
): string | number | boolean | undefined {
  if (typeof given === "number" || typeof given === "boolean") return given;
  const words = textOf(given).trim();
  if (words === "") return undefined;
  if (kind === "boolean") {
    const word = words.toLowerCase();
    return yesWords.has(word) ? true : noWords.has(word) ? false : words;
  }
  if (kind === "number" || kind === "integer") {
    return Number.isFinite(Number(words)) ? Number(words) : words;
  }
  if (kind === "choice") {
    return options.find(({ value, label }) => value === words || label === words)?.value ?? words;
  }
  if (kind === "date") return dateOf(words);
  if (kind === "date-time") return dateTimeOf(words);
  return words;
}

/** Cards give `2026-11-23 +0800`; people write `2026/11/23` or `2026年11月23日`. */
function dateOf(words: string): string {
  const [, year, month = "", date = ""] =
    /^(\d{4})[-/.年](\d{1,2})[-/.月](\d{1,2})日?(?: [+-]\d{2}:?\d{2})?$/.exec(words) ?? [];
  return year === undefined ? words : `${year}-${month.padStart(2, "0")}-${date.padStart(2, "0")}`;
}

/** Whether a date that has the right form is in the calendar: 30 February is not. */
function isInCalendar(date: string): boolean {
  const midnight = new Date(`${date}T00:00:00Z`);
  return !Number.isNaN(midnight.getTime()) && midnight.toISOString().startsWith(date);
}

/** Cards give `2026-11-23 22:00 +0800`; servers want what RFC 3339 says. */
function dateTimeOf(words: string): string {
  const parts =
    /^(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2})(:\d{2}(?:\.\d+)?)? ?(Z|[+-]\d{2}):?(\d{2})?$/i.exec(
      words,
    );
  if (parts === null) return words;
  const [, day, time, seconds = ":00", zone = "Z", minutes = "00"] = parts;
  return `${day}T${time}${seconds}${zone.toUpperCase() === "Z" ? "Z" : `${zone}:${minutes}`}`;
}

const day = String.raw`\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])`;

const patterns: Readonly<Partial<Record<FormField["kind"], string>>> = {
  email: String.raw`^[^\s@]+@[^\s@.]+(?:\.[^\s@.]+)+$`,
  uri: String.raw`^[A-Za-z][A-Za-z0-9+.-]*:\S+$`,
  date: `^${day}$`,
  "date-time": String.raw`^${day}T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:Z|[+-]\d{2}:\d{2})$`,
};

/** The form as a schema of our own: no word of the server's schema is run. */
function schemaOf(fields: readonly FormField[]): object {
  const properties = Object.fromEntries(fields.map((field) => [field.name, propertyOf(field)]));
  const required = fields.filter((field) => field.required).map(({ name }) => name);
  return { type: "object", properties, required, additionalProperties: false };
}

function propertyOf({ kind, options = [], min, max }: FormField): object {
  if (kind === "boolean") return { type: "boolean" };
  if (kind === "choice") return { type: "string", enum: options.map(({ value }) => value) };
  if (kind === "number" || kind === "integer") {
    return {
      type: kind,
      ...(min === undefined ? {} : { minimum: min }),
      ...(max === undefined ? {} : { maximum: max }),
    };
  }
  const pattern = patterns[kind];
  return {
    type: "string",
    ...(pattern === undefined ? {} : { pattern }),
    ...(min === undefined ? {} : { minLength: Math.max(0, Math.ceil(min)) }),
    ...(max === undefined ? {} : { maxLength: Math.max(0, Math.floor(max)) }),
  };
}
