import { createHash } from "node:crypto";
import {
  parserOf,
  type LocalText,
  type ParseResult,
  type SessionKey,
  peopleOf,
} from "@larkline/protocol";
import type { ToolAnnouncement, ToolOutcome } from "@larkline/protocol/tool";
import type { CallState, TurnState } from "@larkline/protocol/turn";
import { Type, type TSchema } from "@larkline/protocol/type";
import type { Ability, AbilityWork } from "../../turn/ability.ts";
import { attemptOf } from "../../turn/tool-call.ts";

/*
 * The working folder of a session: the tools that the model gets for it, and what they do. The files are values of a
 * store, so no path of a model reaches a file system. Texts of files are material, as results of tools are.
 */

/** A file of a folder. */
interface FolderFile {
  readonly path: string;
  readonly text: string;
  /** The length of the text in bytes. */
  readonly bytes: number;
  /** Whether this call has written it before. */
  isOf(call: FolderChange): boolean;
}

interface FolderChange {
  readonly turnId: string;
  readonly call: string;
  /** The person of the turn. */
  readonly by: string;
  readonly path: string;
}

/** The folders of sessions, and the chats that take files. */
export interface FilesClient {
  /** Bounds of one folder: files, bytes of one and of all. */
  readonly limits: { readonly files: number; readonly fileBytes: number; readonly bytes: number };
  /** Why this is no path of a folder, in words; undefined where it is one. */
  problemOfPath(path: string): string | undefined;
  all(session: SessionKey): Promise<FolderFile[]>;
  read(session: SessionKey, path: string): Promise<FolderFile | undefined>;
  /** Changes a file to what `text` makes of it; undefined takes it away. */
  change(
    session: SessionKey,
    change: FolderChange,
    text: (file: FolderFile | undefined) => string | undefined,
  ): Promise<"written" | "closed" | "full" | "length" | "busy">;
  /**
   * A file that a tool has kept, by its id; undefined: it is not there any more. As with images, who knows an id was
   * given it in a conversation, because it is a hash of the content.
   */
  kept(id: string): Promise<{ readonly name?: string; readonly bytes: Uint8Array } | undefined>;
  /**
   * Sends a file to the chat of a turn's person, once for each `key`. `stopped`: the turn was cancelled before;
   * `unknown`: the chat has not confirmed it; undefined: there is no chat that takes files.
   */
  send(
    turn: TurnState,
    file: { readonly name: string; readonly bytes: Uint8Array; readonly key: string },
  ): Promise<"sent" | "stopped" | "unknown" | { readonly refused: string } | undefined>;
}

declare module "../../turn/ability.ts" {
  interface AbilityClients {
    files: FilesClient;
  }
}

/** The ability of agents that are configured with `files: true`. */
export const files: Ability = {
  name: "files",
  config: Type.Boolean({
    description:
      "A working folder of each conversation, with tools to read, write, list, search and edit text files. Default: no.",
  }),
  toolNames: [
    "list_files",
    "read_file",
    "search_files",
    "write_file",
    "edit_file",
    "delete_file",
    "send_file",
  ],
  tools: ({ settings }, message) => {
    if (settings["files"] !== true) return [];
    return peopleOf(message).reply.channel === "feishu" ? toolsWithChat : tools;
  },
  run,
  runMs: ({ name }) => (name === sendFileName ? sendFileMs : undefined),
  needs: ({ name }) => (name === sendFileName ? "send-file" : undefined),
};

const sendFileName = "send_file";
/** One that sends a file ends by itself before. */
const sendFileMs = 30_000;

const linesOfPage = 2_000;
/** Arguments of calls are bounded, too: longer files are written in several calls. */
const contentCharacters = 60_000;
const maxMatches = 100;
const matchCharacters = 200;
/** The store takes fewer, and says how many. */
const maxPathCharacters = 1_000;

const path = Type.String({
  minLength: 1,
  maxLength: maxPathCharacters,
  description: "Such as notes/plan.md.",
});
const folderName = Type.Optional(
  Type.String({ maxLength: maxPathCharacters, description: "A folder; all files if absent." }),
);
const closed = { additionalProperties: false };

const ListInput = Type.Object({ folder: folderName }, closed);
const ReadInput = Type.Object(
  {
    path,
    offset: Type.Optional(
      Type.Integer({
        minimum: 0,
        description: "Lines to leave out at the beginning; 0 if absent.",
      }),
    ),
    lines: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: linesOfPage,
        description: `At most; ${linesOfPage} if absent.`,
      }),
    ),
  },
  closed,
);
const SearchInput = Type.Object(
  {
    query: Type.String({
      minLength: 1,
      maxLength: 200,
      description: "Text as it is in the file; case does not matter.",
    }),
    folder: folderName,
  },
  closed,
);
const WriteInput = Type.Object(
  {
    path,
    content: Type.String({ maxLength: contentCharacters }),
    append: Type.Optional(
      Type.Boolean({ description: "Adds to the end of the file instead of replacing it." }),
    ),
  },
  closed,
);
const EditInput = Type.Object(
  {
    path,
    old_text: Type.String({
      minLength: 1,
      maxLength: contentCharacters,
      description: "Exactly as it is in the file.",
    }),
    new_text: Type.String({ maxLength: contentCharacters }),
    all: Type.Optional(
      Type.Boolean({ description: "Every place; if absent there must be one place only." }),
    ),
  },
  closed,
);
const SendInput = Type.Object(
  {
    path: Type.String({
      minLength: 1,
      maxLength: maxPathCharacters,
      description: "Such as notes/plan.md, or the blob:... of a file that a tool has kept.",
    }),
    name: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 100,
        description: "As people see it; that of the file if absent.",
      }),
    ),
  },
  closed,
);
const DeleteInput = Type.Object({ path }, closed);

type Effect = ToolAnnouncement["effect"];

/** What people read of these tools, and of a call. */
const words: Readonly<Record<string, { title: LocalText; summary?: LocalText }>> = {
  list_files: { title: { zh: "列出文件", en: "List files" } },
  read_file: {
    title: { zh: "读取文件", en: "Read a file" },
    summary: { zh: "读取 {path}", en: "Read {path}" },
  },
  search_files: { title: { zh: "搜索文件", en: "Search files" } },
  write_file: {
    title: { zh: "写入文件", en: "Write a file" },
    summary: { zh: "写入 {path}", en: "Write {path}" },
  },
  edit_file: {
    title: { zh: "修改文件", en: "Edit a file" },
    summary: { zh: "修改 {path}", en: "Edit {path}" },
  },
  delete_file: {
    title: { zh: "删除文件", en: "Delete a file" },
    summary: { zh: "删除 {path}", en: "Delete {path}" },
  },
  [sendFileName]: { title: { zh: "发送文件", en: "Send a file" } },
};

const tools: readonly ToolAnnouncement[] = [
  tool(
    "list_files",
    "pure",
    "Lists the files of this conversation's working folder, with their sizes.",
    ListInput,
  ),
  tool(
    "read_file",
    "pure",
    "Reads a text file of the working folder, page by page if it is long.",
    ReadInput,
  ),
  tool(
    "search_files",
    "pure",
    "Finds the lines of the working folder's files that contain a text.",
    SearchInput,
  ),
  tool(
    "write_file",
    "idempotent",
    "Writes a text file into this conversation's working folder, where later messages find it.",
    WriteInput,
  ),
  tool(
    "edit_file",
    "idempotent",
    "Replaces one text by another in a file of the working folder.",
    EditInput,
  ),
  tool("delete_file", "idempotent", "Takes a file out of the working folder.", DeleteInput),
];

const toolsWithChat: readonly ToolAnnouncement[] = [
  ...tools,
  {
    ...tool(
      sendFileName,
      "idempotent",
      "Sends a file of the working folder, or one that a tool has kept, to the chat, as an attachment. Use it when people want the file itself.",
      SendInput,
    ),
    timeoutMs: 120_000,
  },
];

function tool(name: string, effect: Effect, description: string, input: TSchema): ToolAnnouncement {
  return {
    spec: { name, description, inputSchema: { ...input } },
    ...words[name],
    effect,
    requiresApproval: false,
    risk: "low",
    addresses: [],
    timeoutMs: 30_000,
  };
}

const parseList = parserOf(ListInput);
const parseRead = parserOf(ReadInput);
const parseSearch = parserOf(SearchInput);
const parseWrite = parserOf(WriteInput);
const parseEdit = parserOf(EditInput);
const parseDelete = parserOf(DeleteInput);
const parseSend = parserOf(SendInput);

/** Rejects when the store does. */
async function run(call: CallState, { turn, clients }: AbilityWork): Promise<ToolOutcome> {
  try {
    return { ok: true, result: await resultOf(clients.files, turn, call) };
  } catch (error) {
    if (error instanceof Refusal) return { ok: false, error: error.message };
    throw error;
  }
}

/** What the model reads in place of a result. */
class Refusal extends Error {}

async function resultOf(folder: FilesClient, turn: TurnState, call: CallState): Promise<unknown> {
  const { session } = turn.message;
  switch (call.name) {
    case "list_files":
      return listing(folder, await folder.all(session), checked(parseList(call.arguments)).folder);
    case "search_files": {
      const { query, folder: inside } = checked(parseSearch(call.arguments));
      return matches(await folder.all(session), query, inside);
    }
    case "read_file": {
      const asked = checked(parseRead(call.arguments));
      const file = await folder.read(session, checkedPath(folder, asked.path));
      if (file === undefined) {
        throw new Refusal(`There is no file ${asked.path}. list_files shows the files.`);
      }
      return page(file, asked);
    }
    case sendFileName:
      return await send(folder, turn, call);
    default:
      return await write(folder, turn, call);
  }
}

function checked<T>(parsed: ParseResult<T>): T {
  if (!parsed.ok) throw new Refusal(`The arguments do not fit: ${parsed.error}`);
  return parsed.value;
}

function checkedPath(folder: FilesClient, given: string): string {
  const problem = folder.problemOfPath(given);
  if (problem !== undefined) {
    throw new Refusal(`The path ${problem}. Paths are like notes/plan.md.`);
  }
  return given.normalize("NFC");
}

function filesIn(all: readonly FolderFile[], inside = ""): readonly FolderFile[] {
  const prefix = inside.replace(/^\.?\/+|\/+$/g, "").normalize("NFC");
  return prefix === "" || prefix === "."
    ? all
    : all.filter((file) => file.path.startsWith(`${prefix}/`));
}

function listing({ limits }: FilesClient, all: readonly FolderFile[], inside: string | undefined) {
  const used = all.reduce((sum, { bytes }) => sum + bytes, 0);
  const shown = filesIn(all, inside).map((file) => ({ path: file.path, bytes: file.bytes }));
  return {
    files: shown,
    freeBytes: Math.max(0, limits.bytes - used),
    freeFiles: limits.files - all.length,
  };
}

function page(
  { text }: FolderFile,
  { offset = 0, lines: most = linesOfPage }: { offset?: number; lines?: number },
) {
  const lines = text.split("\n");
  const end = Math.min(offset + most, lines.length);
  if (offset === 0 && end === lines.length) return text;
  const rest = end < lines.length ? `go on with offset ${end}` : "this is the end";
  const place = `[Lines ${Math.min(offset + 1, lines.length)} to ${end} of ${lines.length}; ${rest}.]`;
  return `${lines.slice(offset, end).join("\n")}\n${place}`;
}

function matches(all: readonly FolderFile[], query: string, inside: string | undefined) {
  const wanted = query.toLowerCase();
  const found: { path: string; line: number; text: string }[] = [];
  for (const file of filesIn(all, inside)) {
    for (const [at, line] of file.text.split("\n").entries()) {
      const place = line.toLowerCase().indexOf(wanted);
      if (place < 0) continue;
      if (found.length === maxMatches) return { matches: found, more: true };
      const from = Math.max(0, place - matchCharacters / 2);
      found.push({ path: file.path, line: at + 1, text: line.slice(from, from + matchCharacters) });
    }
  }
  return { matches: found };
}

/** A call that runs again after a crash leaves a file as it is that it has written before. */
async function write(folder: FilesClient, turn: TurnState, call: CallState): Promise<string> {
  const { turnId, message } = turn;
  const { path: given, text } = changeOf(call, folder);
  const target = checkedPath(folder, given);
  const change = { turnId, call: attemptOf(call), by: message.sender.id, path: target };
  let before: FolderFile | undefined;
  let bytes = 0;
  const result = await folder.change(message.session, change, (file) => {
    before = file;
    const wanted = file?.isOf(change) === true ? file.text : text(file?.text);
    bytes = Buffer.byteLength(wanted ?? "");
    return wanted;
  });
  if (result !== "written") throw new Refusal(notWritten(folder)[result]);
  if (call.name !== "delete_file") return `${target} has ${bytes} bytes now.`;
  // It may be this call that removed it, before a crash.
  return before === undefined ? `There is no file ${target} now.` : `${target} is gone.`;
}

/** Most files that one step sends. */
const maxSends = 10;
/**
 * Sends a file to the chat of the turn's person. A call that runs again after a crash sends under the same key, so that the
 * platform shows no second message; the call's deadline is well within the hour that it knows the key.
 */
async function send(folder: FilesClient, turn: TurnState, call: CallState): Promise<string> {
  const { path: given, name } = checked(parseSend(call.arguments));
  if (
    turn.calls.filter((one) => one.name === sendFileName).findIndex(({ id }) => id === call.id) >=
    maxSends
  ) {
    throw new Refusal(`At most ${maxSends} files are sent at once. This one was not sent.`);
  }
  const file = await wholeFile(folder, turn.message.session, given);
  if (file.bytes.byteLength === 0) throw new Refusal(`${file.name} is empty. It was not sent.`);
  const fileName = sentName(name ?? file.name);
  const key = keyOf(`${turn.turnId} ${attemptOf(call)}`);
  const sent = await folder.send(turn, { name: fileName, bytes: file.bytes, key });
  if (sent === "sent") return `${fileName} was sent to the chat.`;
  if (sent === undefined) {
    throw new Refusal(
      "This conversation has no chat that takes files. Put the text into your answer.",
    );
  }
  if (sent === "stopped") throw new Refusal("The turn was stopped. Nothing was sent.");
  throw new Refusal(
    sent === "unknown"
      ? `${fileName} may have been sent: the chat has not confirmed it. Tell the person so, and do not send it again unasked.`
      : `${fileName} was not sent: the chat does not take it (${sent.refused}).`,
  );
}

async function wholeFile(
  folder: FilesClient,
  session: SessionKey,
  given: string,
): Promise<{ name: string; bytes: Uint8Array }> {
  const id = /^blob:(blob_[\w-]{43})$/.exec(given.trim())?.[1];
  if (id !== undefined) {
    const kept = await folder.kept(id);
    if (kept === undefined) {
      throw new Refusal("The file is not kept any more. Let the tool make it again.");
    }
    return { name: kept.name ?? "file", bytes: kept.bytes };
  }
  const file = await folder.read(session, checkedPath(folder, given));
  if (file === undefined) {
    throw new Refusal(`There is no file ${given}. list_files shows the files.`);
  }
  return { name: file.path, bytes: Buffer.from(file.text, "utf8") };
}

/** What a file is called in a chat: the last part of a path, without characters that a name has nowhere. */
function sentName(given: string): string {
  const name = (given.split(/[/\\]/).at(-1) ?? "")
    .replaceAll(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, "")
    .trim();
  if (name === "" || name === "." || name === "..") {
    throw new Refusal("The name is none of a file. It was not sent.");
  }
  return name;
}

/** An idempotency key of the platform, at most 50 characters. */
function keyOf(text: string): string {
  return `file-${createHash("sha256").update(text).digest("hex").slice(0, 32)}`;
}

interface Change {
  path: string;
  /** Returns the new text of the file, given its present one; undefined: the file is deleted. */
  text(before: string | undefined): string | undefined;
}

function changeOf(call: CallState, folder: FilesClient): Change {
  if (call.name === "delete_file") {
    return { ...checked(parseDelete(call.arguments)), text: () => undefined };
  }
  if (call.name === "edit_file") {
    const edit = checked(parseEdit(call.arguments));
    return { path: edit.path, text: (before) => edited(before, edit, folder) };
  }
  const { path: target, content, append } = checked(parseWrite(call.arguments));
  return { path: target, text: (before = "") => (append === true ? before + content : content) };
}

function edited(
  before: string | undefined,
  {
    path: target,
    old_text,
    new_text,
    all,
  }: { path: string; old_text: string; new_text: string; all?: boolean },
  folder: FilesClient,
): string {
  if (before === undefined) {
    throw new Refusal(`There is no file ${target}. list_files shows the files.`);
  }
  const parts = before.split(old_text);
  if (parts.length === 1) {
    throw new Refusal("old_text is not in the file. Read it again, and give the text exactly.");
  }
  if (parts.length > 2 && all !== true) {
    throw new Refusal(
      `old_text is in the file ${parts.length - 1} times. Give more of what is around it, or set all.`,
    );
  }
  // Looked at before: a short text in many places may become gigabytes. Characters are never more than bytes.
  const characters = before.length + (parts.length - 1) * (new_text.length - old_text.length);
  if (characters > folder.limits.fileBytes) throw new Refusal(notWritten(folder).length);
  return parts.join(new_text);
}

function notWritten({ limits }: FilesClient) {
  return {
    closed: "The call was answered already. Nothing was written.",
    full: `The folder is full: it holds ${limits.files} files with ${limits.bytes} bytes together. Nothing was written; delete what is not needed.`,
    length: `A file has at most ${limits.fileBytes} bytes. Nothing was written; use several files.`,
    busy: "Other calls write this file at the moment. Nothing was written; try again.",
  };
}
