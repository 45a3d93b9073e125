import { randomUUID } from "node:crypto";
import { parseArgs } from "node:util";
import { createEnvReader, type Env } from "@larkline/process/config";
import type { ParseResult } from "@larkline/protocol";
import { languages, type Language } from "./texts.ts";

export interface ChatConfig {
  url: string;
  language: Language;
  sessionId: string;
  token?: string;
}

export const usage = `npm run chat -- [--url http://127.0.0.1:8000] [--lang zh|en] [--session id]

  --url      address of the ingress
  --lang     language of the client's own texts, default zh
  --session  go on with this conversation (letters, digits, "-" and "_"); default: a new one

API_TOKEN is sent as bearer token when it is set.`;

interface Flags {
  url: string;
  lang: string;
  session: string | undefined;
}

function readFlags(args: readonly string[]): ParseResult<Flags> {
  try {
    const { values } = parseArgs({
      args: [...args],
      options: {
        url: { type: "string", default: "http://127.0.0.1:8000" },
        lang: { type: "string", default: "zh" },
        session: { type: "string" },
      },
    });
    return { ok: true, value: { ...values, session: values.session } };
  } catch (error) {
    return { ok: false, error: error instanceof Error ? error.message : String(error) };
  }
}

/** Reads the command line and the environment; every problem is reported at once. */
export function loadConfig(args: readonly string[], env: Env): ParseResult<ChatConfig> {
  const flags = readFlags(args);
  if (!flags.ok) return flags;
  const { url, lang, session = randomUUID() } = flags.value;
  const reader = createEnvReader(env);
  const token = reader.secret("API_TOKEN");
  const language = languages.find((one) => one === lang) ?? "zh";
  if (language !== lang) reader.problem(`--lang must be one of ${languages.join(", ")}.`);
  if (!URL.canParse(url) || !/^https?:/.test(url)) reader.problem("--url must be an http or https address.");
  if (!/^[\w-]{1,64}$/.test(session)) reader.problem('--session must be 1 to 64 letters, digits, "-" or "_".');
  return reader.finish({ url, language, sessionId: session, ...(token === undefined ? {} : { token }) });
}
