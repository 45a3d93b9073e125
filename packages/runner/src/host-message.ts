import { parserOf, ToolOutcome, type Actor, type CallAuthority } from "@larkline/protocol";
import { Type, type Static } from "typebox";

/** One call on its way to a process that has loaded the tool's module. */
export interface HostCall {
  /** URL of the module that holds the tool. */
  module: string;
  tool: string;
  input: Record<string, unknown>;
  facts: { callId: string; turnId: string; actor: Actor; authority: CallAuthority };
  maxOutputBytes: number;
  lend?: LentPackages | undefined;
  /** Other calls may run in the process. */
  isShared?: boolean;
}

/** What a sandbox loads ahead of the call that it is for: nothing here belongs to one call, or to one person. */
export type SandboxPreparation = Pick<HostCall, "module" | "tool" | "lend">;
/** The rest of a call. */
export type SandboxCall = Pick<HostCall, "input" | "facts" | "maxOutputBytes">;

/** Asks a process to load modules before it is called. */
export interface HostLoad {
  load: readonly string[];
  lend?: LentPackages | undefined;
}

/** Packages that a module without any of its own gets from the module `lender` (a URL). */
export interface LentPackages {
  names: readonly string[];
  lender: string;
}

const Progress = Type.Object({
  kind: Type.Literal("progress"),
  fraction: Type.Number(),
  detail: Type.Optional(Type.String()),
});
const Log = Type.Object({
  kind: Type.Literal("log"),
  message: Type.String(),
  fields: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
});
const SaveFile = Type.Object({
  kind: Type.Literal("saveFile"),
  base64: Type.String(),
  mediaType: Type.String(),
  name: Type.Optional(Type.String()),
});

/** What a tool tells while it runs. Its third message, the result, is the answer to the call. */
export type HostEvent = Static<typeof Progress> | Static<typeof Log>;
/** What it asks its runner to do; the answer is the id of the stored file. */
export type HostRequest = Static<typeof SaveFile>;

const parseProgress = parserOf(Progress);
const parseLog = parserOf(Log);

function kindOf(body: unknown): unknown {
  return typeof body === "object" && body !== null && "kind" in body ? body.kind : undefined;
}

/** Reads a message of a tool's process; an error value says what was wrong with it. */
export function parseHostEvent(body: unknown): ReturnType<typeof parseProgress> | ReturnType<typeof parseLog> {
  const kind = kindOf(body);
  if (kind === "progress") return parseProgress(body);
  if (kind === "log") return parseLog(body);
  return { ok: false, error: `messages of kind ${String(JSON.stringify(kind)).slice(0, 80)} do not exist` };
}

export const parseHostRequest = parserOf(SaveFile);
export const parseHostOutcome = parserOf(ToolOutcome);
