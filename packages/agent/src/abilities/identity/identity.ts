import { peopleOf } from "@larkline/protocol";
import type { Approval, AskedConsent } from "@larkline/protocol/approval";
import { textOf } from "@larkline/protocol/content";
import { denial, type ToolOutcome } from "@larkline/protocol/tool";
import type { CallState, TurnState } from "@larkline/protocol/turn";
import { oneLine } from "../../texts/index.ts";
import { userMessageOf } from "../../turn/messages.ts";
import {
  abilityOf,
  withState,
  type Ability,
  type AskedPeople,
  type CallFacts,
  type DecisionEntry,
} from "../../turn/ability.ts";
import { recordOf, requestEvents } from "../approvals/approvals.ts";

// Calls that act as the person of the turn: they wait until that person has let the app do what they need.

declare module "../../turn/ability.ts" {
  interface AbilityFacts {
    /**
     * What the person of the turn has granted the app, as far as a token of theirs is good. The driver gives nothing
     * where it does not know it yet, finds it out, and decides again. Absent: no grants are kept.
     */
    identity?: { granted(): readonly string[] } | undefined;
  }
}

/** What the ability keeps: calls whose person was asked because the platform had refused them. */
interface IdentityState {
  readonly asked: readonly string[];
}

/** A person may answer so long after they were asked, ms. */
const waitMs = 7 * 86_400_000;

/** Calls of one turn that are remembered. */
const maxAsked = 200;

/** Its key in the checkpoint. */
const name = "identity";

export const identity: Ability<IdentityState> = {
  name,
  toolNames: [],
  beforeCall: (call, facts) => {
    const { tools, abilities, known = {} } = facts.env;
    const announced = tools.get(call.name)?.announcement.identity;
    const needed =
      announced?.as === "person"
        ? announced.scopes
        : (abilityOf(call, abilities)?.scopesOf?.(call) ?? []);
    if (announced?.as !== "person" && needed.length === 0) return undefined;
    if (peopleOf(facts.turn.message).reply.channel === "none") return { outcome: noPerson };
    if (known.identity === undefined) {
      // Without grants, no runner is given a token.
      return announced?.as === "person" ? undefined : { outcome: noGrants };
    }
    const granted = known.identity.granted();
    const scopes = needed.filter((scope) => !granted.includes(scope));
    return scopes.length === 0 ? undefined : { ask: askedConsent(call, { scopes }, facts) };
  },
  onOutcome: (call, { outcome }, facts) => {
    const { turn, ending } = facts;
    if (ending === true || outcome.ok || outcome.grant?.kind !== "scopes") return undefined;
    if (peopleOf(turn.message).reply.channel === "none" || wasAsked(turn, call)) return undefined;
    const asked = [...askedIn(turn), call.id].slice(-maxAsked);
    const kept = withState(turn, { name }, { asked } satisfies IdentityState);
    const consent = { scopes: outcome.grant.scopes, refused: true } as const;
    return { ask: askedConsent(call, consent, facts), call, turn: kept };
  },
  onDecision: (call, entry, { turn }) => {
    if (entry.state !== "approved") return notGranted(entry);
    return wasAsked(turn, call) ? { again: call } : { start: call };
  },
  permissionOf: ({ message: { chatType, sender } }) =>
    chatType === "group" ? sender.name : undefined,
  needs: () => "consent",
};

const maxTaskChars = 200;

/** The person is asked where no other person reads it. */
function askedConsent(call: CallState, consent: AskedConsent, facts: CallFacts): AskedPeople {
  const { message } = facts.turn;
  const deciders = { requester: true, people: [], roles: [], fourEyes: false, count: 1 };
  const reason = oneLine(textOf(userMessageOf(message)), maxTaskChars);
  const question = {
    deciders,
    reason,
    risk: "low",
    expiresAtMs: facts.env.nowMs + waitMs,
  } as const;
  // An attempt that the platform refused may have waited before it began.
  const key = consent.refused === true ? "refused" : name;
  const {
    bilingual: _bilingual,
    reasons: _reasons,
    ...record
  } = recordOf(call, { kind: "consent", question, key }, facts);
  const { target, requester } = record;
  const asked: Approval = {
    ...record,
    consent,
    target:
      target.channel === "feishu"
        ? { ...target, chatId: requester.id, messageId: "", inThread: false }
        : target,
  };
  return { record: asked, events: requestEvents(asked) };
}

function askedIn({ abilities }: TurnState): readonly string[] {
  return (abilities[name] as IdentityState | undefined)?.asked ?? []; // written here alone
}

/** Whether its person was asked because the platform had refused the call: that happens once. */
function wasAsked(turn: TurnState, { id }: CallState): boolean {
  return askedIn(turn).includes(id);
}

const noPerson = denial(
  "this tool acts as a person of Feishu, and the message comes from none. The call was not run. Ask from a chat with the bot.",
);

const noGrants = denial(
  "this needs a permission of the person, and this deployment keeps none (GRANT_KEY). The call was not run.",
);

/** What the model reads where the person has granted nothing. */
const endings: Readonly<Record<string, string>> = {
  rejected: "the person does not want to give the permission now",
  expired: "the person did not answer within a week",
  undeliverable: "the person could not be asked",
};

function notGranted({ state, decisions }: DecisionEntry): ToolOutcome {
  const why = endings[state] ?? "the question for the permission was withdrawn";
  const notes = decisions.flatMap(({ note = "" }) =>
    note.trim() === "" ? [] : [` (${note.trim()})`],
  );
  return denial(
    `this call needs a permission of the person it acts as, and ${why}${notes.join("")}. The call was not run. ` +
      "Do not ask for it again in this answer; say what you could not do.",
  );
}
