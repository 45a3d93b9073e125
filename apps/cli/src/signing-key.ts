import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { runnerKeyOf } from "@larkline/protocol";
import type { Deployment } from "./config.ts";
import type { Bilingual } from "./language.ts";
import { ok, problem, skipped, warning, type Finding } from "./finding.ts";

/** Shorter ones could be guessed; workers refuse them. */
export const shortestKey = 32;

/** What to do where there is none. */
export const noSigningKey: Bilingual = {
  zh: "没有密钥：请设置 CALL_SIGNING_KEY（与 agent-worker 相同），或先运行一次 npm start。",
  en: "There is no key: set CALL_SIGNING_KEY, as the workers have it, or run npm start once.",
};

/** The key that `npm start` has made. */
export interface StoredKey {
  path: string;
  key: string;
  /** Somebody else on this machine may read it. */
  open: boolean;
}

/** Undefined when there is none. Rejects when it cannot be read. */
export async function readStoredKey(dataDirectory: string): Promise<StoredKey | undefined> {
  const path = join(dataDirectory, "signing-key");
  try {
    const [key, { mode }] = [(await readFile(path, "utf8")).trim(), await stat(path)];
    return { path, key, open: (mode & 0o077) !== 0 };
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
}

function storedFinding(stored: StoredKey | undefined): Finding {
  if (stored === undefined) {
    return skipped("keys", {
      zh: "没有设置 CALL_SIGNING_KEY：npm start 会自己生成",
      en: "CALL_SIGNING_KEY is not set: npm start makes one",
    });
  }
  if (stored.open) {
    return warning(
      "keys",
      { zh: `本机其他用户可以读取 ${stored.path}`, en: `Others on this machine may read ${stored.path}` },
      { zh: `运行 chmod 600 ${stored.path}`, en: `Run chmod 600 ${stored.path}` },
    );
  }
  return ok("keys", { zh: `调用使用 ${stored.path} 签名`, en: `Calls are signed with ${stored.path}` });
}

/** Whether workers and runners of this deployment trust each other. Without a key of their own only those of `npm start` do. */
export function keyFindings(
  { signingKey, runnerKey, runner }: Pick<Deployment, "signingKey" | "runnerKey" | "runner">,
  stored: StoredKey | undefined,
): Finding[] {
  if (signingKey !== undefined && signingKey.length < shortestKey) {
    return [
      problem(
        "keys",
        {
          zh: `CALL_SIGNING_KEY 少于 ${shortestKey} 个字符`,
          en: `CALL_SIGNING_KEY has fewer than ${shortestKey} characters`,
        },
        { zh: "使用 openssl rand -hex 32 生成一个。", en: "Make one with openssl rand -hex 32." },
      ),
    ];
  }
  const key = signingKey ?? stored?.key;
  if (runnerKey !== undefined && key !== undefined && runnerKey !== runnerKeyOf(key, runner)) {
    return [
      problem(
        "keys",
        {
          zh: `RUNNER_KEY 不是 ${runner} 的密钥，它的调用都会被拒绝`,
          en: `RUNNER_KEY is not that of ${runner}: it would refuse every call`,
        },
        {
          zh: `设为 npm run runner-key -- ${runner} 的输出，或更正 RUNNER_NAME。`,
          en: `Set it to what npm run runner-key -- ${runner} prints, or correct RUNNER_NAME.`,
        },
      ),
    ];
  }
  if (signingKey === undefined) return [storedFinding(stored)];
  return [ok("keys", { zh: "调用使用 CALL_SIGNING_KEY 签名", en: "Calls are signed with CALL_SIGNING_KEY" })];
}
