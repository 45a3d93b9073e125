import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Bilingual } from "./language.ts";

/** What to do where there is none. */
export const noRedis: Bilingual = {
  zh: "不知道 Redis 在哪里：请设置 REDIS_URL，或先运行 npm start。",
  en: "It is not known where Redis is: set REDIS_URL, or run npm start.",
};

/** Address and password of the Redis that `npm start` runs now; undefined when it does not run. */
export async function readPrivateRedis(dataDirectory: string): Promise<string | undefined> {
  try {
    return (await readFile(join(dataDirectory, "redis.url"), "utf8")).trim();
  } catch {
    return undefined;
  }
}
