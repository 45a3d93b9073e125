import { expect, it } from "vitest";
import {
  approvalWorld,
  hasButtons,
  titleOf,
  type ApprovalParts,
  type ApprovalWorld,
} from "./approval-world.fixture.ts";
import { replacing } from "../simulated-api.fixture.ts";

interface Fate {
  /** Step at which the process dies, from 1: a call of the store, the rules or the platform. */
  at: number;
  moment: "before" | "after";
}

class Dead extends Error {
  override readonly name = "Dead";
}

/** The same parts for a process that dies; `met` tells whether it came that far. */
function mortal(
  { api, approvals, keepRule, wake }: ApprovalParts,
  fate: Fate,
): { parts: ApprovalParts; met: () => boolean } {
  let steps = 0;
  let dead = false;
  let met = false;
  const die = (): never => {
    dead = true;
    met = true;
    throw new Dead();
  };
  const step = async <T>(run: () => Promise<T>): Promise<T> => {
    if (dead) throw new Dead();
    steps += 1;
    const isMine = steps === fate.at;
    if (isMine && fate.moment === "before") die();
    const result = await run();
    return isMine || dead ? die() : result;
  };
  const parts: ApprovalParts = {
    api: replacing(api, {
      messages: replacing(api.messages, {
        send: (...call) => step(() => api.messages.send(...call)),
        reply: (...call) => step(() => api.messages.reply(...call)),
      }),
      cards: replacing(api.cards, {
        patchMessage: (...call) => step(() => api.cards.patchMessage(...call)),
      }),
    }),
    approvals: replacing(approvals, {
      leaseCards: (...call) => step(() => approvals.leaseCards(...call)),
      saveCards: (...call) => step(() => approvals.saveCards(...call)),
      settle: (...call) => step(() => approvals.settle(...call)),
    }),
    keepRule: (...call) => step(() => keepRule(...call)),
    wake: (...call) => step(() => wake(...call)),
  };
  return { parts, met: () => met };
}

/** What happens to an approval while a process that looks after its cards dies. */
type Story = (world: ApprovalWorld, dying: ReturnType<ApprovalWorld["cardsOver"]>) => Promise<void>;

const remember = { tool: "deploy", pattern: "*" };

const sending: Story = async (world, dying) => {
  const question = await world.ask({ remember });
  await dying.work(question.session, question.id);
  await world.settleCards();
  expect(world.allSent().map(titleOf)).toEqual(["Approve deploy?", "Approve deploy?"]);
  await world.decide(question, "approve", { remember: true });
};

const sendingAndDeciding: Story = async (world, dying) => {
  const question = await world.ask({ remember });
  await dying.work(question.session, question.id);
  await world.decide(question, "approve", { remember: true });
};

const retiring: Story = async (world, dying) => {
  const question = await world.ask({ remember });
  await world.settleCards();
  await world.decide(question, "approve", { remember: true });
  await dying.work(question.session, question.id);
};

/** Runs the story with a death at every step that there is, each time in a world of its own. */
async function everyDeath(
  story: Story,
  check: (world: ApprovalWorld, fate: Fate) => Promise<void>,
): Promise<number> {
  for (let at = 1; at < 40; at += 1) {
    let metAny = false;
    for (const moment of ["before", "after"] as const) {
      const world = await approvalWorld({ deciders: 1 });
      const { parts, met } = mortal(world.parts, { at, moment });
      await story(world, world.cardsOver(parts));
      await world.settleCards();
      await check(world, { at, moment });
      metAny ||= met();
    }
    if (!metAny) return at - 1;
  }
  throw new Error("too many steps");
}

it.each([
  ["the cards are sent", sending, 6],
  ["the cards are sent and a person decides over HTTP", sendingAndDeciding, 6],
  ["the cards are retired", retiring, 5],
] as const)(
  "a process that dies at any step while %s doubles no card and leaves no button",
  async (_what, story, steps) => {
    const died = await everyDeath(story, async (world) => {
      const sent = world.allSent();
      expect(sent.filter(hasButtons)).toEqual([]);
      expect(world.inChat().length).toBeLessThanOrEqual(1);
      expect(sent.length).toBeLessThanOrEqual(2);
      expect(new Set(sent.map(titleOf)).size).toBeLessThanOrEqual(1);
      expect(await world.rules.list(world.appId)).toHaveLength(1);
    });
    expect(died).toBeGreaterThanOrEqual(steps);
  },
);

it("a process that dies at any step while no person can be asked leaves no turn waiting", async () => {
  const died = await everyDeath(
    async (world, dying) => {
      world.simulator.refuseSends(world.chatId, 230018);
      world.simulator.refuseSends(world.people[0] ?? "", 230053);
      const question = await world.ask();
      await dying.work(question.session, question.id);
      await world.settleCards();
      expect(await world.stateOf(question)).toBe("undeliverable");
      const claim = await world.store.claim(question.session, 2, "worker");
      expect(claim?.control).toMatchObject([
        { type: "decision", approvalId: question.id, state: "undeliverable" },
      ]);
    },
    async (world) => expect(world.allSent()).toEqual([]),
  );
  expect(died).toBeGreaterThanOrEqual(7);
});
