import { languageOf } from "@larkline/agent";
import type { AgentConfig } from "@larkline/process/config";
import { replyLanguages, type ReplyLanguage } from "@larkline/protocol";
import type { LookupCache } from "@larkline/store";
import type { Logger } from "@larkline/process/telemetry";
import { withDeadline } from "./deadline.ts";

/** What a person has written, as far as it tells their language. */
export interface Written {
  text: string;
  /** Names that stand in the text behind an `@`. */
  mentioned?: readonly string[];
  /** The words are not the person's: a picture's, a forwarded card's, those of a menu entry. */
  isForeign?: boolean;
  /** The person is not served: nothing is kept of them. */
  isStranger?: boolean;
}

export interface PersonLanguagesDeps {
  /** The bot's app id: ids of people are those of an app. */
  app: string;
  lookups: Pick<LookupCache, "get" | "set">;
  /** How long a language is kept after the last message with words, ms. Default 90 days. */
  keptMs?: number;
  logger: Logger;
}

const defaultKeptMs = 90 * 24 * 3_600_000;
/** A store that hangs must not hold messages up for the sake of a few words. */
const patienceMs = 1_000;

/** Name of the fact; over HTTP, where no person is known, `person` is the id of the session. */
function keyOf(app: string, person: string): string {
  return `lang:${app}:${person}`;
}

/** Which language each person writes: the one of their last message with words of their own. */
export class PersonLanguages {
  readonly #deps: PersonLanguagesDeps;

  constructor(deps: PersonLanguagesDeps) {
    this.#deps = deps;
  }

  /** The language of a message's writer, which is kept; never rejects. */
  async hear(person: string, written: Written, agent: Pick<AgentConfig, "defaultLanguage">): Promise<ReplyLanguage> {
    const found = writtenLanguage(written);
    if (found?.isSure !== true) return (await this.#kept(person)) ?? found?.language ?? agent.defaultLanguage;
    // A message never waits for this.
    if (written.isStranger !== true) void this.#keep(person, found.language);
    return found.language;
  }

  /** The language of a person who writes nothing at the moment; never rejects. */
  async of(person: string, agent: Pick<AgentConfig, "defaultLanguage">): Promise<ReplyLanguage> {
    return (await this.#kept(person)) ?? agent.defaultLanguage;
  }

  async #kept(person: string): Promise<ReplyLanguage | undefined> {
    const { app, lookups, logger } = this.#deps;
    try {
      const kept = await withDeadline(lookups.get(keyOf(app, person)), patienceMs);
      return replyLanguages.find((language) => language === kept);
    } catch (error) {
      logger.warn({ error }, "a person's language could not be read");
      return undefined;
    }
  }

  async #keep(person: string, language: ReplyLanguage): Promise<void> {
    const { app, lookups, keptMs = defaultKeptMs, logger } = this.#deps;
    try {
      await lookups.set(keyOf(app, person), language, keptMs);
    } catch (error) {
      logger.warn({ error }, "a person's language could not be kept");
    }
  }
}

/**
 * The language that a text is written in; undefined where it has no words, such as a number, a picture or an emoji.
 * Not sure: a command such as `/help` alone, which speakers of every language write, and words of another author.
 */
export function writtenLanguage(written: Written): { language: ReplyLanguage; isSure: boolean } | undefined {
  const words = wordsOf(written);
  const command = /^\s*\/[\w-]+\s*$/;
  if (!/\p{L}/u.test(words)) return undefined;
  return { language: languageOf(words), isSure: written.isForeign !== true && !command.test(words) };
}

/** The text without what is the same in every language: code, addresses, names of people and of emoji. */
function wordsOf({ text, mentioned = [] }: Written): string {
  const bare = mentioned.reduce((left, name) => (name === "" ? left : left.replaceAll(`@${name}`, " ")), text);
  return bare
    .replaceAll(/```[^]*?(?:```|$)|`[^`\n]*`/g, " ")
    .replaceAll(/https?:\/\/[^\s\p{Script=Han}]+|@\S+/giu, " ")
    .replaceAll(/\[[\p{L}\p{N}_]{1,20}\](?!\()|:[A-Za-z\d_]{1,30}:/gu, " ");
}
