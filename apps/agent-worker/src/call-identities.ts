import { FeishuError, type FeishuApi } from "@larkline/feishu";
import type { GrantOwner } from "@larkline/store";
import type { CallIdentities, IdentityOfCall } from "@larkline/store/runners";
import { isProgram } from "@larkline/protocol";
import type { ToolIdentityNeed, ToolOutcome } from "@larkline/protocol/tool";
import type { CallState, TurnState } from "@larkline/protocol/turn";
import type { PersonTokens } from "./person-tokens.ts";

// As whom calls act. The ledger says it when a call is opened: from the message whose sender the platform has vouched for,
// never from what a runner or a model says.

type Facts = Parameters<CallIdentities["of"]>[0];

/**
 * As whom a call of this turn may act: what its tool wants, but for messages of the HTTP API, whose callers say
 * themselves who they are, and of programs. There the bot acts, or the call is refused (`none`). A helper has the sender of its root's message.
 */
export function actsAs(
  { message: { chatType, sender } }: { message: Pick<TurnState["message"], "chatType" | "sender"> },
  { as }: Pick<ToolIdentityNeed, "as">,
): ToolIdentityNeed["as"] | "none" {
  if ((chatType !== "api" && !isProgram(sender)) || as === "bot") return as;
  return as === "either" ? "bot" : "none";
}

/** What the ledger and the audit log say of a call that acts as a person or the bot. */
export function identityFactsOf(
  turn: TurnState,
  { identity }: CallState,
): Pick<Facts, "as" | "scopes"> {
  return identity === undefined ? {} : { as: actsAs(turn, identity), scopes: identity.scopes };
}

interface BotAtPlatform {
  api: Pick<FeishuApi, "baseUrl" | "botToken">;
}

interface TokenBrokerOptions {
  /** The bots, by app id. */
  bots: ReadonlyMap<string, BotAtPlatform>;
  /** The tokens of people; absent without `GRANT_KEY`: then calls act as the bot only. */
  tokens?: Pick<PersonTokens, "tokenFor"> | undefined;
  /** Reports that an app lacks permissions, which a person's call has shown. */
  lacks?(owner: Pick<GrantOwner, "app" | "openId">, scopes: readonly string[]): Promise<void>;
  /** Notes that a tool acts as a person. */
  used?(owner: GrantOwner, tool: string): Promise<void>;
}

/** Gives calls the tokens of the people and bots that they act as. */
export class TokenBroker implements CallIdentities {
  readonly #options: TokenBrokerOptions;

  constructor(options: TokenBrokerOptions) {
    this.#options = options;
  }

  async of(facts: Facts): Promise<IdentityOfCall> {
    const { as, scopes = [] } = facts;
    const bot = this.#options.bots.get(facts.app ?? "");
    if (bot === undefined) {
      return refused("no bot of this deployment is connected for this conversation");
    }
    if (as === "none") {
      return refused("it acts as a person, and who asks here is not known for sure");
    }
    const { tokens } = this.#options;
    const owner = ownerOf(facts);
    if (as === "bot" || (as === "either" && (tokens === undefined || owner === undefined))) {
      return await asBot(bot);
    }
    if (tokens === undefined) {
      return refused("acting as people is switched off here (GRANT_KEY is not set)");
    }
    if (owner === undefined) {
      return refused("it acts as a person, and who asks here is not known for sure");
    }
    const found = await tokens.tokenFor(owner, scopes);
    if (found.state === "token") {
      const { token } = found;
      const { openId } = owner;
      await this.#options.used?.(owner, facts.tool ?? "");
      return {
        state: "identity",
        identity: { as: "person", token, openId, apiOrigin: bot.api.baseUrl },
      };
    }
    if (found.state === "unavailable") return found;
    if (as === "either") return await asBot(bot);
    return { state: "refused", outcome: missing(found.scopes) };
  }

  async tokenRefused(facts: Facts, digest: string): Promise<void> {
    const owner = ownerOf(facts);
    if (owner !== undefined && facts.as !== "bot") {
      await this.#options.tokens?.tokenFor(owner, [], digest);
    }
    if (facts.as !== "person") await this.#options.bots.get(facts.app ?? "")?.api.botToken(digest);
  }

  async appLacks(facts: Facts, scopes: readonly string[]): Promise<void> {
    const owner = ownerOf(facts);
    if (owner !== undefined) await this.#options.lacks?.(owner, scopes);
  }
}

function ownerOf({ app, tenant, userId }: Facts): GrantOwner | undefined {
  return app === undefined || tenant === undefined || userId === undefined
    ? undefined
    : { app, tenant, openId: userId };
}

async function asBot({ api }: BotAtPlatform): Promise<IdentityOfCall> {
  try {
    return {
      state: "identity",
      identity: { as: "bot", token: await api.botToken(), apiOrigin: api.baseUrl },
    };
  } catch (error) {
    if (error instanceof FeishuError) return { state: "unavailable" };
    throw error;
  }
}

function missing(scopes: string[]): ToolOutcome {
  const error = `grant_needed: the person has not allowed this yet (${scopes.join(", ")}). The call was not run.`;
  return { ok: false, error, grant: { kind: "scopes", scopes } };
}

function refused(why: string): IdentityOfCall {
  return {
    state: "refused",
    outcome: { ok: false, error: `identity_refused: ${why}. The call was not run.` },
  };
}
