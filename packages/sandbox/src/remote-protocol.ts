import { jsonParserOf, type ParseResult, parserOf } from "@larkline/protocol";
import { type Static, Type } from "@larkline/protocol/type";
import { parseUntrusted } from "./frame.ts";
import { type SandboxFile, type SandboxRequest, type SandboxResult, sandboxStatuses } from "./sandbox.ts";

/*
 * The contract of a sandbox over HTTP. `POST /v1/runs` with a bearer token and a JSON body starts one
 * run; the answer is a stream of lines, each a JSON object: `accepted` at once, `progress` and `output`
 * as they come, `beat` in silence, and `result` as the last one. Closing the connection cancels the run.
 *
 * A run that is posted to `/v1/held-runs` says `place` when it has a place and a sandbox, and starts when
 * `POST /v1/held-runs/<request id>/begin` came after that: 204, as often as it is sent while the run lives; 404 by a host
 * that holds no such run. A host of an older version answers 404 to the run itself.
 */

export const runsPath = "/v1/runs";
export const heldRunsPath = "/v1/held-runs";
/** Where the client says that a run that has its place may begin. */
export function beginPath(requestId: string): string {
  return `${heldRunsPath}/${requestId}/begin`;
}
/** Names a run; a host takes each once, so that nothing between can repeat a run. */
export const requestIdHeader = "x-request-id";
/** Largest body of a request that a host accepts: its files count a third more than their bytes. */
export const defaultBodyBytes = 32 * 1_048_576;
const maxFiles = 256;

const File = Type.Object(
  { name: Type.String({ minLength: 1, maxLength: 1_024 }), base64: Type.String() },
  { additionalProperties: false },
);

const limit = Type.Optional(Type.Integer({ minimum: 1 }));
const RemoteRun = Type.Object(
  {
    program: Type.Object(
      {
        runtime: Type.Enum(["node", "python", "bash"]),
        code: Type.String(),
        input: Type.Optional(Type.Unknown()),
        files: Type.Optional(Type.Array(File, { maxItems: maxFiles })),
      },
      { additionalProperties: false },
    ),
    limits: Type.Optional(
      Type.Object(
        {
          wallMs: limit,
          cpuSeconds: limit,
          memoryMb: limit,
          processes: limit,
          openFiles: limit,
          files: limit,
          diskMb: limit,
          outputBytes: limit,
          resultBytes: limit,
        },
        { additionalProperties: false },
      ),
    ),
    env: Type.Optional(Type.Record(Type.String(), Type.String())),
    network: Type.Optional(
      Type.Union([
        Type.Literal("none"),
        Type.Object({ allow: Type.Array(Type.String(), { maxItems: 256 }) }, { additionalProperties: false }),
      ]),
    ),
  },
  { additionalProperties: false },
);

const text = Type.String();
const schemas = {
  accepted: Type.Object({ type: Type.Literal("accepted") }),
  beat: Type.Object({ type: Type.Literal("beat") }),
  place: Type.Object({ type: Type.Literal("place") }),
  progress: Type.Object({ type: Type.Literal("progress"), fraction: Type.Number(), detail: text }),
  output: Type.Object({ type: Type.Literal("output"), stream: Type.Enum(["stdout", "stderr"]), text }),
  result: Type.Object({
    type: Type.Literal("result"),
    status: Type.Enum([...sandboxStatuses]),
    value: Type.Optional(Type.Unknown()),
    exitCode: Type.Optional(Type.Integer()),
    error: Type.Optional(text),
    stdout: text,
    stderr: text,
    files: Type.Array(File, { maxItems: maxFiles }),
    skipped: Type.Array(Type.Object({ name: text, reason: text }), { maxItems: maxFiles }),
    denied: Type.Array(text, { maxItems: maxFiles }),
    wallMs: Type.Number(),
    cpuMs: Type.Optional(Type.Number()),
    peakMemoryBytes: Type.Optional(Type.Number()),
  }),
};
type Schemas = typeof schemas;

/** One line of the answer. */
export type RemoteLine = { [T in keyof Schemas]: Static<Schemas[T]> }[keyof Schemas];

const parsers: { [T in keyof Schemas]: (line: unknown) => ParseResult<RemoteLine> } = {
  accepted: parserOf(schemas.accepted),
  beat: parserOf(schemas.beat),
  place: parserOf(schemas.place),
  progress: parserOf(schemas.progress),
  output: parserOf(schemas.output),
  result: parserOf(schemas.result),
};

/** Reads a line of the answer. The other machine may have been taken over by a program, so it is as hostile as one. */
export function parseLine(line: Buffer): ParseResult<RemoteLine> {
  try {
    const data = parseUntrusted(line);
    const type = typeof data === "object" && data !== null && "type" in data ? data.type : undefined;
    const known = Object.entries(parsers).find(([name]) => name === type);
    return known === undefined ? { ok: false, error: "a line of an unknown type" } : known[1](data);
  } catch {
    return { ok: false, error: "a line that is no JSON" };
  }
}

export function lineOf(line: RemoteLine): string {
  return `${JSON.stringify(line)}\n`;
}

function toWire(files: readonly SandboxFile[]): Static<typeof File>[] {
  return files.map(({ name, bytes }) => ({ name, base64: Buffer.from(bytes).toString("base64") }));
}

function fromWire(files: readonly Static<typeof File>[]): SandboxFile[] {
  return files.map(({ name, base64 }) => ({ name, bytes: Buffer.from(base64, "base64") }));
}

export function resultLine({ status, files, ...rest }: SandboxResult): RemoteLine {
  return { type: "result", status, ...rest, files: toWire(files) };
}

export function resultOf({ type: _type, files, ...rest }: RemoteLine & { type: "result" }): SandboxResult {
  return { ...rest, files: fromWire(files) };
}

/** The body for a run, or why this run cannot go elsewhere. */
export function bodyOf({ program, limits, env, network }: SandboxRequest): ParseResult<string> {
  if ("module" in program) {
    return { ok: false, error: "a module runs on its own machine only: give the source text, or another isolation" };
  }
  const { files, ...source } = program;
  const run: Static<typeof RemoteRun> = {
    program: files === undefined ? source : { ...source, files: toWire(files) },
    ...(limits === undefined ? {} : { limits }),
    ...(env === undefined ? {} : { env: { ...env } }),
    ...(network === undefined ? {} : { network: network === "none" ? network : { allow: [...network.allow] } }),
  };
  return { ok: true, value: JSON.stringify(run) };
}

const parseRun = jsonParserOf(RemoteRun);

/** Reads the body of a run. */
export function parseBody(body: string): ParseResult<Omit<SandboxRequest, "signal">> {
  const parsed = parseRun(body);
  if (!parsed.ok) return parsed;
  const { program, ...rest } = parsed.value;
  const { files, ...source } = program;
  return {
    ok: true,
    value: { ...rest, program: files === undefined ? source : { ...source, files: fromWire(files) } },
  };
}
