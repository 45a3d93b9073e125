import { ok, problem, type Finding } from "./finding.ts";
import type { Bilingual } from "./language.ts";

const maxDifferenceMs = 5_000;

export interface ClockOffsets {
  /** Another clock minus that of this machine, in ms; absent when it could not be read. */
  redisMs?: number;
  feishuMs?: number;
}

interface Difference {
  between: Bilingual;
  ms: number;
}

function differencesOf({ redisMs, feishuMs }: ClockOffsets): Difference[] {
  const differences: Difference[] = [];
  if (redisMs !== undefined) {
    differences.push({ between: { zh: "本机与 Redis", en: "this machine and Redis" }, ms: redisMs });
  }
  if (feishuMs !== undefined) {
    differences.push({ between: { zh: "本机与飞书", en: "this machine and Feishu" }, ms: feishuMs });
  }
  if (redisMs !== undefined && feishuMs !== undefined) {
    differences.push({ between: { zh: "Redis 与飞书", en: "Redis and Feishu" }, ms: redisMs - feishuMs });
  }
  return differences;
}

/** Clocks that differ make leases, deadlines and signatures wrong. */
export function clockFindings(offsets: ClockOffsets): Finding[] {
  const differences = differencesOf(offsets);
  const wrong = differences.filter(({ ms }) => Math.abs(ms) > maxDifferenceMs);
  if (differences.length > 0 && wrong.length === 0) {
    return [ok("clock", { zh: "时钟一致（相差不到 5 秒）", en: "The clocks agree to 5 s" })];
  }
  return wrong.map(({ between, ms }) => {
    const seconds = (Math.abs(ms) / 1_000).toFixed(0);
    return problem(
      "clock",
      { zh: `${between.zh}的时钟相差 ${seconds} 秒`, en: `The clocks of ${between.en} differ by ${seconds} s` },
      { zh: "用 NTP 校准时钟。", en: "Set the clocks by NTP." },
    );
  });
}
