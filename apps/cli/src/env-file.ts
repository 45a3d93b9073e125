import { randomUUID } from "node:crypto";
import { open, readFile, realpath, rename, rm, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";

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
  /** Somebody else on this machine may read it. */
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
    return { path: given, exists: false, text: "", values: {}, unreadable: [], repeated: [], open: false };
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
 * Sets values in the file, readable by its owner only. The file is replaced as a whole: whoever
 * reads it, and whatever ends this process, finds the old one or the new one.
 */
export async function writeEnvFile(path: string, values: Readonly<Record<string, string>>): Promise<void> {
  const file = await readEnvFile(path);
  const text = textWith(file.text, values);
  const draft = join(dirname(file.path), `.env-${randomUUID()}.tmp`);
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
