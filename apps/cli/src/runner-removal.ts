import { closeRedis, connectRedis, RunnerDirectory } from "@larkline/store";
import type { Bilingual, Language } from "./language.ts";

const lines: Record<"removed" | "lives" | "unknown", (name: string) => Bilingual> = {
  removed: (name) => ({
    en: `Runner ${name} is forgotten: its tools are not offered any more.`,
    zh: `已忘掉 tool-runner ${name}：不再提供它的工具。`,
  }),
  lives: (name) => ({
    en: `Runner ${name} is running. Stop its processes first: each announces its tools every 2 seconds.`,
    zh: `tool-runner ${name} 正在运行。请先停止它的进程：它们每 2 秒会重新声明自己的工具。`,
  }),
  unknown: (name) => ({
    en: `There is no runner named ${name}: it never was there, or it has been forgotten.`,
    zh: `没有名为 ${name} 的 tool-runner：从未有过，或已被忘掉。`,
  }),
};

/** Forgets a runner that is away. `line` says what became of it; not done where it lives, or is not known. */
export async function removeRunner(
  name: string,
  { redisUrl, namespace, language }: { redisUrl: string; namespace: string; language: Language },
): Promise<{ done: boolean; line: string }> {
  let problem: unknown;
  const redis = connectRedis(redisUrl, { onError: (error) => (problem = error) });
  try {
    const { forgotten, living } = await new RunnerDirectory({ redis, namespace }).forget(name);
    const ended = living > 0 ? lines.lives : forgotten ? lines.removed : lines.unknown;
    return { done: forgotten && living === 0, line: ended(name)[language] };
  } catch (error) {
    throw problem ?? error;
  } finally {
    await closeRedis(redis);
  }
}
