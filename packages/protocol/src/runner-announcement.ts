import { createHmac, timingSafeEqual } from "node:crypto";
import { Type, type Static } from "./type.ts";
import { jsonParserOf, type ParseResult } from "./schema.ts";
import { RunnerName, ToolAnnouncement } from "./tool.ts";

/** One process of a runner as it stores itself, under a key that only its runner may write. */
export const RunnerAnnouncement = Type.Object({
  /** Epoch ms of the store's clock, signed: when it counts as gone, and when it began to offer this generation. */
  expiresAtMs: Type.Integer(),
  beganAtMs: Type.Integer(),
  /** When it has withdrawn; not signed, because it makes nothing true but that it is gone. */
  goneAtMs: Type.Optional(Type.Integer()),
  /** Names the build; the one that began last gets the runner's calls. */
  generation: Type.String({ maxLength: 128 }),
  /** Per tool name a digest of what all instances of a generation must agree on. */
  digests: Type.Record(Type.String(), Type.String()),
  runner: RunnerName,
  instance: Type.String({ minLength: 1, maxLength: 128 }),
  /** JSON text of the list of {@link ToolAnnouncement}. */
  offer: Type.String(),
  /** HMAC-SHA-256 in hex, see {@link announcementMac}. */
  mac: Type.String({ maxLength: 128 }),
  /** Which clocks it finds to differ, in English, for people; not signed. */
  clock: Type.Optional(Type.String({ maxLength: 500 })),
});
export type RunnerAnnouncement = Static<typeof RunnerAnnouncement>;

/** How long the tools of a runner are offered after its last instance went, ms: longer than a deployment takes. */
export const awayMs = 600_000;

const parseAnnouncement = jsonParserOf(RunnerAnnouncement);
const parseOffer = jsonParserOf(Type.Array(ToolAnnouncement, { maxItems: 1_000 }));

type Signed = Pick<
  RunnerAnnouncement,
  "runner" | "instance" | "generation" | "beganAtMs" | "expiresAtMs" | "offer"
>;

/**
 * What a runner signs of its announcement, with its `RUNNER_KEY`: the seven lines `announcement`, runner, instance,
 * generation, beganAtMs, expiresAtMs, offer. With the times, an announcement cannot be used again later, nor made older.
 */
export function announcementMac(signed: Signed, runnerKey: string): string {
  const { runner, instance, generation, beganAtMs, expiresAtMs, offer } = signed;
  const lines = ["announcement", runner, instance, generation, beganAtMs, expiresAtMs, offer];
  return createHmac("sha256", runnerKey).update(lines.join("\n")).digest("hex");
}

/**
 * Reads what stands under the key of `runner`; with its key, refuses what it has not signed. Workers believe what a
 * tool is said to be, such as that it needs no approval.
 */
export function readAnnouncement(
  text: string,
  { runner, runnerKey }: { runner: string; runnerKey: string | undefined },
): ParseResult<RunnerAnnouncement & { tools: ToolAnnouncement[] }> {
  const parsed = parseAnnouncement(text);
  if (!parsed.ok) return parsed;
  const announcement = parsed.value;
  if (announcement.runner !== runner) return { ok: false, error: "it is of another runner" };
  if (runnerKey !== undefined) {
    const [given, expected] = [
      Buffer.from(announcement.mac),
      Buffer.from(announcementMac(announcement, runnerKey)),
    ];
    const isGenuine = given.length === expected.length && timingSafeEqual(given, expected);
    if (!isGenuine) return { ok: false, error: "the signature is wrong" };
  }
  const tools = parseOffer(announcement.offer);
  if (!tools.ok) return tools;
  const { goneAtMs = announcement.expiresAtMs } = announcement;
  const expiresAtMs = Math.min(announcement.expiresAtMs, goneAtMs);
  return { ok: true, value: { ...announcement, expiresAtMs, tools: tools.value } };
}
