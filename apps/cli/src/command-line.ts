import { parseArgs } from "node:util";
import type { Env } from "@larkline/process/config";
import { type ParseResult, parserOf } from "@larkline/protocol";
import { RunnerName } from "@larkline/protocol/runner";
import { type Bilingual, type Language, languageOf, languages } from "./config.ts";

interface CommonOptions {
  language: Language;
  envFile: string;
}

export interface DoctorOptions extends CommonOptions {
  command: "doctor";
  json: boolean;
  webhookUrl?: string;
}

export interface RunnerKeyOptions extends CommonOptions {
  command: "runner-key";
  /** The runner. */
  name: string;
}

export interface RunnerOptions extends CommonOptions {
  command: "runner";
  action: "add" | "remove";
  /** The runner. */
  name: string;
  /** With `add`: the module with its tools, or a program in another language. */
  tools: string;
}

export interface RecordsOptions extends CommonOptions {
  command: "audit" | "ratings";
  /** Epoch ms: records from the first to before the second. */
  fromMs: number;
  toMs: number;
}

export interface PeopleOptions extends CommonOptions {
  command: "people";
  action: "export" | "delete";
  /** The person's id: an open_id, or the id that a client of the HTTP API has sent. */
  person: string;
  /** Absent: that of `FEISHU_APP_ID`. */
  app?: string;
  /** Direct chats of the person that no index knows. */
  chats: readonly string[];
  /** Delete, not only count. */
  yes: boolean;
}

export type Command =
  | DoctorOptions
  | SetupOptions
  | RunnerKeyOptions
  | RunnerOptions
  | RecordsOptions
  | PeopleOptions;

export interface SetupOptions extends CommonOptions {
  command: "setup";
  manual: boolean;
  yes: boolean;
  overwrite: boolean;
  /** Answers given as options, by variable. */
  answers: Readonly<Record<string, string>>;
}

const optionTypes = {
  lang: { type: "string" },
  file: { type: "string", default: ".env" },
  json: { type: "boolean", default: false },
  "webhook-url": { type: "string" },
  manual: { type: "boolean", default: false },
  yes: { type: "boolean", default: false },
  overwrite: { type: "boolean", default: false },
  "app-id": { type: "string" },
  domain: { type: "string" },
  transport: { type: "string" },
  model: { type: "string" },
  from: { type: "string" },
  to: { type: "string" },
  app: { type: "string" },
  chat: { type: "string", multiple: true },
} as const;

const answeredBy = {
  FEISHU_APP_ID: "app-id",
  FEISHU_DOMAIN: "domain",
  FEISHU_TRANSPORT: "transport",
  MODEL: "model",
} as const;

function parsed(args: readonly string[]) {
  return parseArgs({ args: [...args], options: optionTypes, allowPositionals: true });
}

type Values = ReturnType<typeof parsed>["values"];

function answersOf(values: Values): Record<string, string> {
  return Object.fromEntries(
    Object.entries(answeredBy).flatMap(([name, option]) => {
      const value = values[option];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}

type Reader = (
  values: Values,
  common: CommonOptions,
  words: readonly string[],
) => ParseResult<Command>;

function readDoctor(
  { json, "webhook-url": webhookUrl }: Values,
  common: CommonOptions,
): ParseResult<DoctorOptions> {
  if (webhookUrl !== undefined && !/^https?:/.test(webhookUrl)) {
    return { ok: false, error: "--webhook-url must be an http or https address." };
  }
  const given = webhookUrl === undefined ? {} : { webhookUrl };
  return { ok: true, value: { command: "doctor", ...common, json, ...given } };
}

function readSetup(values: Values, common: CommonOptions): ParseResult<SetupOptions> {
  const { manual, yes, overwrite } = values;
  return {
    ok: true,
    value: { command: "setup", ...common, manual, yes, overwrite, answers: answersOf(values) },
  };
}

const parseRunnerName = parserOf(RunnerName);

const badRunnerName =
  "Name the runner: 1 to 64 letters, digits, '_' or '-', as in its RUNNER_NAME.";

function readRunnerKey(
  _values: Values,
  common: CommonOptions,
  words: readonly string[],
): ParseResult<RunnerKeyOptions> {
  const [name = ""] = words;
  if (!parseRunnerName(name).ok) return { ok: false, error: badRunnerName };
  return { ok: true, value: { command: "runner-key", ...common, name } };
}

function readRunner(
  _values: Values,
  common: CommonOptions,
  words: readonly string[],
): ParseResult<RunnerOptions> {
  const [action, name = "", tools = `${name}.ts`, ...rest] = words;
  const isKnown = action === "add" || (action === "remove" && words.length === 2);
  if (!isKnown || rest.length > 0) {
    return {
      ok: false,
      error: "Say what to do, and with which runner: add <name> [file] or remove <name>.",
    };
  }
  if (!parseRunnerName(name).ok) return { ok: false, error: badRunnerName };
  return { ok: true, value: { command: "runner", ...common, action, name, tools } };
}

/** A date, or date and time, as in ISO 8601; without a zone it is UTC. */
function timeOf(text: string): number | undefined {
  const [, date, time, zone] =
    /^(\d{4}-\d{2}-\d{2})(?:T([\d:.]+)(Z|[+-]\d{2}:\d{2})?)?$/.exec(text) ?? [];
  if (date === undefined) return undefined;
  const atMs = Date.parse(time === undefined ? date : `${date}T${time}${zone ?? "Z"}`);
  return Number.isNaN(atMs) ? undefined : atMs;
}

function readRecords(
  command: RecordsOptions["command"],
  { from, to }: Values,
  common: CommonOptions,
): ParseResult<RecordsOptions> {
  const fromMs = from === undefined ? 0 : timeOf(from);
  const toMs = to === undefined ? Number.POSITIVE_INFINITY : timeOf(to);
  if (fromMs === undefined || toMs === undefined) {
    return {
      ok: false,
      error: "--from and --to must be times such as 2026-03-01 or 2026-03-01T08:00:00+08:00.",
    };
  }
  if (fromMs >= toMs) return { ok: false, error: "--from must be before --to." };
  return { ok: true, value: { command, ...common, fromMs, toMs } };
}

function readPeople(
  values: Values,
  common: CommonOptions,
  words: readonly string[],
): ParseResult<PeopleOptions> {
  const { app, chat: chats = [], yes } = values;
  const [action, person] = words;
  if ((action !== "export" && action !== "delete") || person === undefined || person === "") {
    return { ok: false, error: "Say what to do, and with whose data: export <id> or delete <id>." };
  }
  if (
    [...chats, ...(app === undefined ? [] : [app])].some(
      (text) => !/^[A-Za-z0-9_-]{1,128}$/.test(text),
    )
  ) {
    return { ok: false, error: "--app and --chat take ids: letters, digits, '_' and '-'." };
  }
  const given = app === undefined ? {} : { app };
  return {
    ok: true,
    value: { command: "people", ...common, action, person, chats, yes, ...given },
  };
}

/** By name, with the number of words that follow it. */
const commands: Readonly<Record<string, { words: number; read: Reader }>> = {
  setup: { words: 0, read: readSetup },
  doctor: { words: 0, read: readDoctor },
  "runner-key": { words: 1, read: readRunnerKey },
  runner: { words: 3, read: readRunner },
  audit: { words: 0, read: (values, common) => readRecords("audit", values, common) },
  ratings: { words: 0, read: (values, common) => readRecords("ratings", values, common) },
  people: { words: 2, read: readPeople },
};

/** Reads the command line. */
export function readCommand(args: readonly string[], env: Env): ParseResult<Command> {
  let line: ReturnType<typeof parsed>;
  try {
    line = parsed(args);
  } catch (error) {
    return { ok: false, error: error instanceof Error ? error.message : String(error) };
  }
  const { values, positionals } = line;
  const language = languages.find((one) => one === (values.lang ?? languageOf(env)));
  if (language === undefined) {
    return { ok: false, error: `--lang must be one of ${languages.join(", ")}.` };
  }
  const [name = "", ...words] = positionals;
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined;
  if (command === undefined || words.length > command.words) {
    return {
      ok: false,
      error: `The first word must be ${Object.keys(commands).join(", ")}; nothing else follows it.`,
    };
  }
  return command.read(values, { language, envFile: values.file }, words);
}

/** Printed for `--help` and after a wrong option. */
export const usage: Bilingual = {
  en: `npm run setup -- [--manual] [--yes] [--overwrite] [options]
  Creates a Feishu app by a link that you confirm, and writes its credentials to .env.
  --manual       for an app that exists: prints what to tick in the developer console, asks for its credentials
  --yes          asks nothing: values come from the options and from the environment
  --overwrite    with --yes: values that .env has already are replaced
  --app-id, --domain feishu|lark|<url>, --transport websocket|webhook|both, --model <provider>/<id>
                 the answers to questions; secrets only from the environment: FEISHU_APP_SECRET,
                 FEISHU_ENCRYPT_KEY, FEISHU_VERIFICATION_TOKEN, ANTHROPIC_API_KEY, OPENAI_API_KEY

npm run doctor -- [--json] [--webhook-url <url>]
  Checks the configuration and everything it names. Exit code 1 when there is a problem.
  --json         for machines
  --webhook-url  public address of the ingress, for apps that get their events by webhook

npm run -s runner-key -- <name>
  Prints the RUNNER_KEY of the runner of that name, made from CALL_SIGNING_KEY or from the key of npm start.

npm run -s runner -- add <name> [file]
  Prints the line that starts a further runner beside npm start, with its keys. file: the module of its tools
  (default <name>.ts), a name as in RUNNER_TOOLS, or a program in Python.
npm run runner -- remove <name>
  Forgets a runner that has stopped for good. Without this its tools are offered for 10 minutes, and calls wait for it.

npm run -s audit -- [--from <time>] [--to <time>]
  Prints what was done for whom, one JSON object a line; times as in 2026-03-01T08:00:00Z.

npm run -s ratings -- [--from <time>] [--to <time>] > cases.jsonl
  Prints how people rated answers, each with the question and the answer as far as they are kept: cases to evaluate.

npm run -s people -- export <id> [--app <app id>] [--chat <chat id>] > file.ndjson
  Prints what is stored of a person, one JSON object a line. --app: default FEISHU_APP_ID.
npm run people -- delete <id> [--app <app id>] [--chat <chat id>] [--yes]
  Deletes it; without --yes it only counts. Workers have to run. What was broken off is finished by another run.
  --chat         a direct chat of the person that no index knows of, or with --app api a session of the HTTP API

All: --file <path> (default .env), --lang zh|en (default: the terminal's).`,
  zh: `npm run setup -- [--manual] [--yes] [--overwrite] [选项]
  通过你确认的链接创建飞书应用，并把凭证写入 .env。
  --manual       用于已有的应用：列出开发者后台要勾选的内容，并询问凭证
  --yes          不提问：取值来自选项和环境变量
  --overwrite    与 --yes 同用：替换 .env 中已有的值
  --app-id、--domain feishu|lark|<地址>、--transport websocket|webhook|both、--model <供应商>/<id>
                 问题的答案；机密只从环境变量读取：FEISHU_APP_SECRET、
                 FEISHU_ENCRYPT_KEY、FEISHU_VERIFICATION_TOKEN、ANTHROPIC_API_KEY、OPENAI_API_KEY

npm run doctor -- [--json] [--webhook-url <地址>]
  检查配置及其涉及的一切。有问题时退出码为 1。
  --json         供程序读取
  --webhook-url  ingress 的公网地址，用于以 webhook 接收事件的应用

npm run -s runner-key -- <名称>
  输出该名称的 tool-runner 的 RUNNER_KEY，由 CALL_SIGNING_KEY 或 npm start 的密钥派生。

npm run -s runner -- add <名称> [文件]
  输出在 npm start 之外再启动一个 tool-runner 的命令，含它的密钥。文件：它的工具模块
  （默认 <名称>.ts）、与 RUNNER_TOOLS 相同的名称，或一个 Python 程序。
npm run runner -- remove <名称>
  忘掉已永久停止的 tool-runner。否则它的工具还会提供 10 分钟，调用会等它回来。

npm run -s audit -- [--from <时间>] [--to <时间>]
  输出审计记录，每行一个 JSON 对象；时间写作 2026-03-01T08:00:00Z。

npm run -s ratings -- [--from <时间>] [--to <时间>] > cases.jsonl
  输出用户对回答的评价，每行附上仍保留的问题和回答，可用作评测用例。

npm run -s people -- export <id> [--app <应用 ID>] [--chat <会话 ID>] > file.ndjson
  输出所存储的某人的数据，每行一个 JSON 对象。--app：默认 FEISHU_APP_ID。
npm run people -- delete <id> [--app <应用 ID>] [--chat <会话 ID>] [--yes]
  删除这些数据；不加 --yes 只统计数量。需有运行中的 worker。中断后再次运行即可完成。
  --chat         索引中没有的、此人的单聊会话；与 --app api 同用时为 HTTP API 的会话

通用：--file <路径>（默认 .env）、--lang zh|en（默认取终端的语言）。`,
};
