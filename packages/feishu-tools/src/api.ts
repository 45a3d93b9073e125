import type { HandlerTool } from "@larkline/tool-kit";
import { Type } from "typebox";
import { makeOnce } from "./exactly-once.ts";
import { completed, quoted, type Settings, type WorkToolSettings } from "./platform.ts";
import { workTool } from "./work-tool.ts";

// Any operation of the Open API, for what the other tools do not do. A runner offers these tools where its deployment
// names them.

const Path = Type.String({
  // No host, no query, nothing that leads elsewhere: `..` and `%` are no parts of ids.
  pattern:
    "^/open-apis/[a-z][a-z_]{1,40}/v[0-9]{1,2}(/[A-Za-z0-9_@:!-][A-Za-z0-9_.@:!-]{0,99}){1,12}$",
  description: "Path of a documented operation with its ids, such as /open-apis/okr/v1/periods.",
});
const Values = Type.Record(Type.String({ maxLength: 100 }), Type.Unknown());

/** What these have to do with is no work of a person: tokens, apps, and who may do what in the company. */
const closed = new Set([
  "admin",
  "application",
  "auth",
  "authen",
  "directory",
  "ehr",
  "event",
  "mdm",
  "oauth",
  "passport",
  "payroll",
  "security_and_compliance",
  "tenant",
  "tenant_tag",
  "trust_party",
  "verification",
]);

/** Throws with words for the model. */
function checkedPath(path: string): string {
  const [, , domain = ""] = path.split("/");
  if (closed.has(domain)) {
    throw new Error(`Operations of ${JSON.stringify(domain)} are closed to this tool.`);
  }
  if (path.includes("..")) throw new Error("This is no path of an operation.");
  return path;
}

const maxShownCharacters = 20_000;

function shown(path: string, answer: unknown): string {
  const text = JSON.stringify(answer, undefined, 1);
  const left = text.length - maxShownCharacters;
  return quoted(
    path,
    left > 0
      ? `${text.slice(0, maxShownCharacters)}\n[${left} characters are left out: ask for less]`
      : text,
  );
}

/** The platform names what is missing when it refuses, and the person is asked for it then. */
const scopes = ["contact:user.basic_profile:readonly"];

function readTool(settings: Settings): HandlerTool {
  return workTool(
    settings,
    {},
    {
      name: "feishu_api_read",
      description:
        "Makes a GET call of the Open API of Feishu as the person, for what no other tool reads. Only documented operations: never guess a path.",
      title: { zh: "调用飞书接口（只读）", en: "Read from Feishu's API" },
      summary: { zh: "读取飞书接口 {path}", en: "Read {path} of Feishu's API" },
      input: { path: Path, query: Type.Optional(Values) },
      effect: "pure",
      scopes,
      reach: "reads",
      run: async ({ path, query: params = {} }, platform) => {
        const url = checkedPath(path);
        const answer = await platform.read<Record<string, unknown>>((client, as) =>
          client.request({ method: "GET", url, params }, as),
        );
        return shown(path, answer);
      },
    },
  );
}

function callTool(settings: Settings): HandlerTool {
  return workTool(
    settings,
    {},
    {
      name: "feishu_api",
      description:
        "Makes a call of the Open API of Feishu as the person that may change, send or delete something, for what no other tool does. The person is always asked, and sees the whole call. Only documented operations: never guess a path.",
      title: { zh: "调用飞书接口", en: "Call Feishu's API" },
      summary: {
        zh: "以你的名义调用飞书接口 {method} {path}",
        en: "Call {method} {path} in your name",
      },
      input: {
        method: Type.Enum(["POST", "PUT", "PATCH", "DELETE"]),
        path: Path,
        query: Type.Optional(Values),
        body: Type.Optional(Values),
      },
      effect: "once",
      scopes,
      // What an operation reaches is not known here: each may send or delete.
      reach: "sends",
      run: async ({ method, path, query: params = {}, body: data }, platform) => {
        const url = checkedPath(path);
        const answer = await makeOnce(platform, {
          run: (client, as) =>
            client.request<{ data: Record<string, unknown> }>(
              { method, url, params, ...(data === undefined ? {} : { data }) },
              as,
            ),
          result: (given) => given,
          find: () => Promise.resolve(undefined), // where it would be seen is not known here
          open: `whether ${method} ${path} took effect`,
        });
        return shown(path, answer);
      },
    },
  );
}

/** Tools for any operation. */
export function apiTools(given: WorkToolSettings = {}): HandlerTool[] {
  const settings = completed(given);
  return [readTool(settings), callTool(settings)];
}

export default apiTools();
