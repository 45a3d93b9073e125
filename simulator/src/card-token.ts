import { newId } from "./id.ts";
import { PlatformError } from "./platform-error.ts";

const lifetimeMs = 30 * 60_000;
const maximumUses = 2;

/** The right to update a card that a person has used (delayed update page). */
export interface CardToken {
  readonly messageId: string;
  readonly createdAt: number;
  /** Whether the callback has had its answer; updates before that fail. */
  answered: boolean;
  uses: number;
}

export interface CardTokens {
  issue(messageId: string): { value: string; token: CardToken };
  /** The token when it can be used: 300020 unknown or not answered yet, 300030 older than 30 min, 300040 used up. */
  usable(value: string): CardToken;
}

export function createCardTokens(now: () => number): CardTokens {
  const tokens = new Map<string, CardToken>();
  return {
    issue(messageId) {
      const value = newId("c-");
      const token = { messageId, createdAt: now(), answered: false, uses: 0 };
      tokens.set(value, token);
      return { value, token };
    },
    usable(value) {
      const token = tokens.get(value);
      if (token === undefined) throw new PlatformError(300020, "the token is invalid");
      if (!token.answered) throw new PlatformError(300020, "the callback of the token is not answered yet");
      if (now() - token.createdAt > lifetimeMs) throw new PlatformError(300030, "the token is expired");
      if (token.uses >= maximumUses) throw new PlatformError(300040, "the token is used up");
      return token;
    },
  };
}
