import { open, readFile, realpath, rename, rm, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { systemRandom } from "@larkline/protocol/clock";
import {
  archiveProtocols,
  checkNamespace,
  createEnvReader,
  domainProblem as problemOfDomain,
  type Env,
  type EnvReader,
  readFirstApp,
  redisProtocols,
} from "@larkline/process/config";

export interface VendorAccess {
  apiKey: string;
  baseUrl?: string;
}

export const transports = ["websocket", "webhook", "both"] as const;
type Transport = (typeof transports)[number];

export interface FeishuAccess {
  appId: string;
  appSecret: string;
  /** `feishu`, `lark` or a base URL. */
  domain: string;
  transport: Transport;
  encryptKey?: string;
  verificationToken?: string;
}

/** The environment as the processes of a deployment read it; what is wrong is absent, and a problem. */
export interface Deployment {
  redisUrl?: string;
  namespace: string;
  feishu?: FeishuAccess;
  vendors: { anthropic?: VendorAccess; openai?: VendorAccess };
  /** `MODEL`. */
  models?: string;
  configFile?: string;
  /** The PostgreSQL of the archive. */
  archiveUrl?: string;
  /** The folder of files and images. */
  blobDirectory?: string;
  /** The key with which calls are signed. */
  signingKey?: string;
  /** One, or several with commas between, the present one first. */
  grantKey?: string;
  /** The key of the runner of that name. */
  runnerKey?: string;
  runner: string;
  /** Where `npm start` listens. */
  host: string;
  ports: { ingress: number; worker: number; runner: number };
  problems: readonly string[];
}

function present<Key extends string, Value>(
  key: Key,
  value: Value | undefined,
): Partial<Record<Key, Value>> {
  // A computed key has the type string; it is Key.
  return value === undefined || value === "" ? {} : ({ [key]: value } as Record<Key, Value>);
}

/** A domain that no process would start with. */
export function domainProblem(domain: string): string | undefined {
  const problem = problemOfDomain(domain);
  return problem === undefined ? undefined : `FEISHU_DOMAIN ${problem}.`;
}

function readFeishu(reader: EnvReader): FeishuAccess | undefined {
  const app = readFirstApp(reader);
  const domain = reader.text("FEISHU_DOMAIN", { default: "feishu" });
  const transport = reader.choice("FEISHU_TRANSPORT", transports, { default: "websocket" });
  const encryptKey = reader.secret("FEISHU_ENCRYPT_KEY");
  const verificationToken = reader.secret("FEISHU_VERIFICATION_TOKEN");
  if (app === undefined) return undefined;
  const wrongDomain = domainProblem(domain);
  if (wrongDomain !== undefined) reader.problem(wrongDomain);
  if (transport !== "websocket" && encryptKey === undefined && verificationToken === undefined) {
    reader.problem(
      `FEISHU_TRANSPORT=${transport} needs FEISHU_ENCRYPT_KEY, FEISHU_VERIFICATION_TOKEN or both.`,
    );
  }
  const isWhole = app.appId !== "" && app.appSecret !== "" && wrongDomain === undefined;
  if (!isWhole) return undefined;
  return {
    ...app,
    domain,
    transport,
    ...present("encryptKey", encryptKey),
    ...present("verificationToken", verificationToken),
  };
}

function readVendor(reader: EnvReader, vendor: "ANTHROPIC" | "OPENAI"): VendorAccess | undefined {
  const apiKey = reader.secret(`${vendor}_API_KEY`);
  const baseUrl = reader.url(`${vendor}_BASE_URL`);
  return apiKey === undefined ? undefined : { apiKey, ...present("baseUrl", baseUrl) };
}

/** Reads the environment; problems are collected, and everything that is right is still there. */
export function readDeployment(env: Env): Deployment {
  const reader = createEnvReader(env);
  const read = {
    ...present("redisUrl", reader.url("REDIS_URL", { protocols: redisProtocols })),
    namespace: checkNamespace(reader, reader.text("REDIS_NAMESPACE", { default: "larkline" })),
    ...present("feishu", readFeishu(reader)),
    vendors: {
      ...present("anthropic", readVendor(reader, "ANTHROPIC")),
      ...present("openai", readVendor(reader, "OPENAI")),
    },
    ...present("models", reader.text("MODEL")),
    ...present("configFile", reader.text("LARKLINE_CONFIG")),
    ...present("archiveUrl", reader.url("ARCHIVE_URL", { protocols: archiveProtocols })),
    ...present("blobDirectory", reader.text("BLOB_DIR")),
    ...present("signingKey", reader.secret("CALL_SIGNING_KEY")),
    ...present("grantKey", reader.secret("GRANT_KEY")),
    ...present("runnerKey", reader.secret("RUNNER_KEY")),
    runner: reader.text("RUNNER_NAME", { default: "local" }),
    host: reader.text("HOST", { default: "127.0.0.1" }),
    ports: {
      ingress: reader.port("INGRESS_PORT", { default: 8_000 }),
      worker: reader.port("AGENT_WORKER_PORT", { default: 8_001 }),
      runner: reader.port("TOOL_RUNNER_PORT", { default: 8_002 }),
    },
  };
  const finished = reader.finish(read);
  return { ...read, problems: finished.ok ? [] : finished.error.split("\n") };
}

/** Where `npm start` keeps its files. Of the shell alone: the launcher does not look for it in `.env`. */
export function readDataDirectory(env: Env): string {
  return createEnvReader(env).text("LARKLINE_DATA_DIR", { default: ".data" });
}

/** A file of `NAME=value` lines, as `npm start` reads it. */
export interface EnvFile {
  /** Where it is, links followed. */
  path: string;
  exists: boolean;
  text: string;
  values: Readonly<Record<string, string>>;
  /** Numbers of lines that are neither empty, a comment nor an assignment. */
  unreadable: readonly number[];
  /** Names that are assigned more than once; the last one counts. */
  repeated: readonly string[];
  /** Other users of this machine may read it. */
  open: boolean;
}

// The same rules as in the launcher, so that what is written here is read there.
const assignment = /^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*$/;
const ignorable = /^\s*(?:#.*)?$/;

function unquoted(value: string): string {
  const quoted = /^(["'])(.*)\1$/.exec(value);
  return quoted === null ? value.replace(/\s+#.*$/, "") : (quoted[2] ?? "");
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ENOENT";
}

function nameIn(line: string): string | undefined {
  return assignment.exec(line)?.[1];
}

function parse(text: string): Pick<EnvFile, "values" | "unreadable" | "repeated"> {
  const values: Record<string, string> = {};
  const unreadable: number[] = [];
  const repeated = new Set<string>();
  for (const [index, line] of text.split(/\r?\n/).entries()) {
    const [, name, value = ""] = assignment.exec(line) ?? [];
    if (name === undefined) {
      if (!ignorable.test(line)) unreadable.push(index + 1);
      continue;
    }
    if (name in values) repeated.add(name);
    values[name] = unquoted(value);
  }
  return { values, unreadable, repeated: [...repeated] };
}

/** Reads the file; an absent one is empty. Rejects when it exists and cannot be read. */
export async function readEnvFile(path: string): Promise<EnvFile> {
  const given = resolve(path);
  try {
    const real = await realpath(given);
    const [text, { mode }] = [await readFile(real, "utf8"), await stat(real)];
    return { path: real, exists: true, text, ...parse(text), open: (mode & 0o077) !== 0 };
  } catch (error) {
    if (!isMissing(error)) throw error;
    return {
      path: given,
      exists: false,
      text: "",
      values: {},
      unreadable: [],
      repeated: [],
      open: false,
    };
  }
}

/** A value as a line's right side; throws when no line can hold it. */
function written(value: string): string {
  if (/[\r\n]/.test(value)) throw new Error("a value with a line break cannot be written");
  return /^[\w./:@%+,=~-]*$/.test(value) ? value : `'${value}'`;
}

/** The text with these values set: on the line that counts today, or at the end. Other lines stay as they are. */
export function textWith(text: string, values: Readonly<Record<string, string>>): string {
  const lines = text === "" ? [] : text.replace(/\n$/, "").split("\n");
  for (const [name, value] of Object.entries(values)) {
    const line = `${name}=${written(value)}`;
    const at = lines.findLastIndex((one) => nameIn(one) === name);
    const ending = lines[at]?.endsWith("\r") === true ? "\r" : "";
    if (at === -1) lines.push(line);
    else lines[at] = `${line}${ending}`;
  }
  return `${lines.join("\n")}\n`;
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/**
 * Sets values in the file, readable by its owner only. The file is replaced as a whole: every reader,
 * also after a crash of this process, finds the old one or the new one.
 */
export async function writeEnvFile(
  path: string,
  values: Readonly<Record<string, string>>,
): Promise<void> {
  const file = await readEnvFile(path);
  const text = textWith(file.text, values);
  const draft = join(dirname(file.path), `.env-${systemRandom.uuid()}.tmp`);
  try {
    const handle = await open(draft, "wx", 0o600);
    try {
      await handle.writeFile(text);
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(draft, file.path);
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
  await syncFolder(dirname(file.path)).catch(() => undefined); // not every file system can
}

export const languages = ["zh", "en"] as const;
export type Language = (typeof languages)[number];

/** A text in both languages. */
export type Bilingual = Readonly<Record<Language, string>>;

/** The language of the terminal: Chinese when it says so, English otherwise. */
export function languageOf(env: Env): Language {
  return /^zh/i.test(env["LC_ALL"] || env["LC_MESSAGES"] || env["LANG"] || "") ? "zh" : "en";
}
