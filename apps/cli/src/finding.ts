import type { Bilingual, Language } from "./config.ts";

export type FindingStatus = "ok" | "warning" | "problem" | "skipped";

/** What one check found. Holds no secrets. */
export interface Finding {
  /** For example `redis.eviction`. */
  check: string;
  status: FindingStatus;
  text: Bilingual;
  /** What to do about it. */
  advice?: Bilingual;
}

export function ok(check: string, text: Bilingual): Finding {
  return { check, status: "ok", text };
}

export function skipped(check: string, text: Bilingual): Finding {
  return { check, status: "skipped", text };
}

export function warning(check: string, text: Bilingual, advice: Bilingual): Finding {
  return { check, status: "warning", text, advice };
}

export function problem(check: string, text: Bilingual, advice: Bilingual): Finding {
  return { check, status: "problem", text, advice };
}

const labels: Readonly<Record<FindingStatus, Bilingual>> = {
  ok: { zh: "正常", en: "ok" },
  warning: { zh: "警告", en: "warning" },
  problem: { zh: "问题", en: "problem" },
  skipped: { zh: "跳过", en: "skipped" },
};

/** Without what a terminal would obey or hide: names and reasons come from outside. Line breaks stay. */
export function printable(text: string): string {
  return text.replaceAll(/(?!\n)[\p{Cc}\p{Bidi_Control}]/gu, "\uFFFD");
}

/** A line per finding, with the advice below. */
export function linesOf({ status, text, advice }: Finding, language: Language): string[] {
  const first = printable(`[${labels[status][language]}] ${text[language]}`);
  return advice === undefined ? [first] : [first, printable(`    -> ${advice[language]}`)];
}

/** For machines: `ok` says that nothing is a problem. */
export function reportOf(findings: readonly Finding[], language: Language): object {
  return {
    ok: !findings.some(({ status }) => status === "problem"),
    checks: findings.map(({ check, status, text, advice }) => ({
      check,
      status,
      text: text[language],
      ...(advice === undefined ? {} : { advice: advice[language] }),
    })),
  };
}
