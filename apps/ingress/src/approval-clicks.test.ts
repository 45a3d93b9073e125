import { afterEach, describe, expect, it } from "vitest";
import type { ConfigInput } from "@larkline/process/config";
import type { CardClickResult } from "@larkline/simulator";
import type { Approval, Deciders } from "@larkline/protocol/approval";
import { ask, shownCard, type Question } from "./approval.fixture.ts";
import { startWorld, testApp, type FeishuWorld, type WorldOptions } from "./feishu.fixture.ts";
import { connectSharedRedis } from "./redis.fixture.ts";

const patience = { timeout: 60_000, interval: 10 };

const { appId } = testApp;
const closing: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

interface Told {
  here: FeishuWorld;
  question: Question;
  click(openId: string, elementId: string, more?: object): Promise<CardClickResult>;
  /** Sends what a button does not carry. */
  send(openId: string, value: object, more?: object): Promise<CardClickResult>;
  /** What the session gets of it. */
  told(): ReturnType<FeishuWorld["told"]>;
  card(): ReturnType<typeof shownCard>;
  pending(): Promise<number>;
}

/** Ann has asked for a call in the group that is decided about as `fields` say. */
async function asked(
  fields: Partial<Approval> | ((here: FeishuWorld) => Partial<Approval>) = {},
  settings: ConfigInput = {},
  options: Pick<WorldOptions, "answerWithinMs"> = {},
): Promise<Told> {
  const { memory, close } = connectSharedRedis();
  closing.push(close);
  const here = await startWorld({ ...options, shared: memory, settings });
  closing.push(here.close);
  const question = await ask(here, typeof fields === "function" ? fields(here) : fields);
  const { session, messageId } = question;
  return {
    here,
    question,
    click: async (openId, elementId, more = {}) =>
      await here.platform.click({ messageId, openId, elementId, ...more }),
    send: async (openId, value, more = {}) =>
      await here.platform.click({ messageId, openId, value: { ...value }, ...more }),
    told: async () => await here.told(session),
    card: () => shownCard(here, question),
    pending: async () => (await here.ingress.approvals.pending(session)).length,
  };
}

function deciders(fields: Partial<Deciders>): Deciders {
  return { requester: false, people: [], roles: [], fourEyes: false, count: 1, ...fields };
}

/** English for everybody whose client is neither English nor Chinese. */
function toast(type: string, content: string) {
  return {
    type,
    content,
    i18n: { en_us: content, zh_cn: expect.stringMatching(/\p{Script=Han}/u) },
  };
}

const noPending = toast("info", "no pending approval");
const invalid = toast("info", "invalid decision");

describe("the rows of the contract", () => {
  it.each([
    ["missing", {}],
    ["empty", { __approval__: "" }],
    ["null", { __approval__: null }],
  ])("AL-30: an id that is %s is no pending approval, and no card", async (_, id) => {
    const { here, send, pending, told } = await asked();
    expect(await send(here.ann, { ...id, decision: "approve" })).toEqual({
      code: 0,
      toast: noPending,
      cardChanged: false,
    });
    expect(await pending()).toBe(1);
    expect(await told()).toEqual([]);
  });

  it.each([
    ["missing", {}, "maybe"],
    ["missing", {}, undefined],
    ["empty", { __approval__: "" }, "Approve"],
    ["null", { __approval__: null }, true],
  ])(
    "AL-30: an id that is %s is refused before the answer says anything of the decision",
    async (...[, id, decision]) => {
      const { here, send, pending } = await asked();
      expect(await send(here.ann, { ...id, decision })).toEqual({
        code: 0,
        toast: noPending,
        cardChanged: false,
      });
      expect(await pending()).toBe(1);
    },
  );

  it.each([["maybe"], ["Approve"], [undefined], [true], ["retry"]])(
    "AL-31: the decision %j is invalid, and the approval stays usable",
    async (decision) => {
      const { here, question, send, click, pending } = await asked();
      const value = {
        __approval__: question.approval.id,
        ...(decision === undefined ? {} : { decision }),
      };
      expect(await send(here.ann, value)).toEqual({ code: 0, toast: invalid, cardChanged: false });
      expect(await pending()).toBe(1);
      expect(await click(here.ann, "approve")).toMatchObject({
        toast: toast("success", "Approved"),
      });
    },
  );

  it("AL-32: a bad id together with a bad decision is an invalid decision; with a good one it is no pending approval", async () => {
    const { here, send } = await asked();
    for (const id of ["none", "f".repeat(32), 7, { a: 1 }]) {
      expect(await send(here.ann, { __approval__: id, decision: "maybe" })).toMatchObject({
        toast: invalid,
      });
      expect(await send(here.ann, { __approval__: id, decision: "approve" })).toEqual({
        code: 0,
        toast: noPending,
        cardChanged: false,
      });
    }
  });

  it("AL-33, AL-61: approve and reject answer with their toast and the decided card, and the session gets who decided", async () => {
    const approved = await asked();
    const { ann } = approved.here;
    expect(await approved.click(ann, "approve")).toEqual({
      code: 0,
      toast: toast("success", "Approved"),
      cardChanged: true,
    });
    expect(approved.card()).toEqual({
      title: "deploy approved",
      template: "green",
      hasButtons: false,
    });
    const { session, approval } = approved.question;
    await expect
      .poll(() => approved.here.ingress.wakes, patience)
      .toEqual([{ session, gen: expect.any(Number) }]);
    expect(await approved.told()).toEqual([
      {
        type: "decision",
        approvalId: approval.id,
        argumentsHash: approval.argumentsHash,
        state: "approved",
        decisions: [{ decision: "approve", by: { id: ann }, atMs: expect.any(Number) }],
        turnId: `${session}-1`,
      },
    ]);

    const rejected = await asked();
    expect(await rejected.click(rejected.here.ann, "reject")).toEqual({
      code: 0,
      toast: toast("info", "Rejected"),
      cardChanged: true,
    });
    expect(rejected.card()).toEqual({
      title: "deploy rejected",
      template: "grey",
      hasButtons: false,
    });
    expect(await rejected.told()).toMatchObject([{ type: "decision", state: "rejected" }]);
  });

  it("AL-35: a rejection reaches the session with the reason that was written into the form", async () => {
    const { here, click, pending, told } = await asked();
    const formValue = { reason: "  not on a Friday " };
    expect(await click(here.ann, "why")).toEqual({ code: 0, cardChanged: true });
    expect(await pending()).toBe(1);
    expect(await click(here.ann, "reject_form_submit", { formValue })).toMatchObject({
      toast: { content: "Rejected" },
    });
    expect(await told()).toMatchObject([
      { state: "rejected", decisions: [{ note: "not on a Friday" }] },
    ]);
  });

  it("AL-35: an empty reason is none, an endless one is cut", async () => {
    const empty = await asked();
    await empty.click(empty.here.ann, "why");
    await empty.click(empty.here.ann, "reject_form_submit", { formValue: { reason: "  " } });
    const [first] = await empty.told();
    expect(first?.type === "decision" ? first.decisions[0] : undefined).not.toHaveProperty("note");
    const long = await asked();
    const value = { __approval__: long.question.approval.id, decision: "reject" };
    await long.send(long.here.ann, value, { formValue: { reason: "😀".repeat(5_000) } });
    expect(await long.told()).toMatchObject([{ decisions: [{ note: "😀".repeat(1_000) }] }]);
  });
});

describe("a click that must not count", () => {
  const foreign: [string, (here: FeishuWorld) => Partial<Approval>, string][] = [
    ["requester only", () => ({}), "Ann"],
    ["another person", (here) => ({ deciders: deciders({ people: [here.ann] }) }), "Ann"],
    ["a role without them", () => ({ deciders: deciders({ roles: ["ops"] }) }), "members of “ops”"],
  ];
  it.each(foreign)(
    "AL-42: of a foreign person (%s) changes nothing and says who may",
    async (_, fields, who) => {
      const { here, click, told, pending, card } = await asked(fields, {
        roles: { ops: { people: ["ou_carol"] } },
      });
      for (const button of ["approve", "reject"]) {
        expect(await click(here.bob, button)).toEqual({
          code: 0,
          toast: toast("info", `Only these may decide: ${who}.`),
          cardChanged: false,
        });
      }
      expect(await pending()).toBe(1);
      expect(await told()).toEqual([]);
      expect(card().hasButtons).toBe(true);
      expect(here.ingress.wakes).toEqual([]);
    },
  );

  it("AL-42: a click without open_id counts for no person", async () => {
    const { here, click, pending } = await asked();
    const clicked = await click(here.ann, "approve", { withoutOpenId: true });
    expect(clicked).toMatchObject({ code: 0, toast: { type: "info" }, cardChanged: false });
    expect(await pending()).toBe(1);
  });

  it("AL-42: of the requester does not count where four eyes have to see it, but their rejection does", async () => {
    const { here, click, told } = await asked(({ ann, bob }) => ({
      deciders: deciders({ requester: true, people: [ann, bob], fourEyes: true }),
    }));
    expect(await click(here.ann, "approve")).toMatchObject({
      toast: { type: "info" },
      cardChanged: false,
    });
    expect(await told()).toEqual([]);
    expect(await click(here.ann, "reject")).toMatchObject({ toast: { content: "Rejected" } });
    expect(await told()).toMatchObject([{ state: "rejected" }]);
  });

  it("AL-41: after the expiry is no pending approval, retires the buttons and lets the session know", async () => {
    const { here, question, click, send, told, card } = await asked(() => ({
      expiresAtMs: Date.now() + 50,
    }));
    await expect.poll(() => Date.now()).toBeGreaterThan(question.approval.expiresAtMs);
    expect(await click(here.bob, "approve")).toEqual({
      code: 0,
      toast: noPending,
      cardChanged: true,
    });
    const late = { __approval__: question.approval.id, decision: "approve" };
    expect(await send(here.ann, late)).toEqual({ code: 0, toast: noPending, cardChanged: true });
    expect(card()).toMatchObject({ hasButtons: false });
    expect(await told()).toMatchObject([{ state: "expired", decisions: [] }]);
    await expect
      .poll(() => here.ingress.wakes, patience)
      .toContainEqual({ session: question.session, gen: expect.any(Number) });
  });

  it("of another app's approval is no pending approval", async () => {
    const { here, question, send, pending } = await asked({ app: "cli_ffffffffffffffff" });
    const value = { __approval__: question.approval.id, decision: "approve" };
    expect(await send(here.ann, value)).toEqual({ code: 0, toast: noPending, cardChanged: false });
    expect(await pending()).toBe(1);
  });

  it("with the id of a question of another kind is no pending approval", async () => {
    const call = await asked();
    const retry = { larkline: "outcome", approval: call.question.approval.id, action: "retry" };
    expect(await call.send(call.here.ann, retry)).toMatchObject({
      toast: noPending,
      cardChanged: false,
    });
    expect(await call.pending()).toBe(1);
    const outcome = await asked({ kind: "outcome" });
    const approve = { __approval__: outcome.question.approval.id, decision: "approve" };
    expect(await outcome.send(outcome.here.ann, approve)).toMatchObject({
      toast: noPending,
      cardChanged: false,
    });
    expect(await outcome.pending()).toBe(1);
  });

  it("with `remember` where that is not offered approves this call alone", async () => {
    const { here, question, send, told } = await asked();
    const value = {
      __approval__: question.approval.id,
      decision: "approve",
      remember: true,
      tool: "other",
    };
    expect(await send(here.ann, value)).toMatchObject({ toast: { content: "Approved" } });
    const [entry] = await told();
    expect(entry?.type === "decision" ? entry.decisions[0] : undefined).not.toHaveProperty(
      "remember",
    );
    expect(await here.ingress.rules.inForce(appId, here.group)).toEqual([]);
  });
});

describe("clicks that come twice", () => {
  it("AL-34, AL-55: at the same moment on two replicas exactly one takes effect", async () => {
    const { here, question, told } = await asked();
    const { messageId } = question;
    const other = await here.replica();
    const buttons = ["approve", "reject", "approve", "reject", "approve", "reject"];
    const clicks = buttons.map(async (elementId, index) => {
      here.platform.setWebhookUrl(
        appId,
        `${index % 2 === 0 ? here.ingress.url : other.url}/feishu/events`,
      );
      return await here.platform.click({
        messageId,
        openId: here.ann,
        value: { __approval__: question.approval.id, decision: elementId },
      });
    });
    const toasts = (await Promise.all(clicks)).map((clicked) => clicked.toast?.content);
    expect(toasts.filter((content) => content !== "no pending approval")).toHaveLength(1);
    // Those that came too late repeat the wake-up, in case it got lost: it is the same one.
    await expect
      .poll(
        () => new Set([...here.ingress.wakes, ...other.wakes].map(({ gen }) => gen)).size,
        patience,
      )
      .toBe(1);
    expect(await told()).toHaveLength(1);
  });

  it("a replayed callback is no pending approval, with the decided card", async () => {
    const { here, question, click, send, told } = await asked();
    const value = { __approval__: question.approval.id, decision: "approve" };
    await click(here.ann, "approve");
    await here.replica();
    expect(await here.platform.replayClick(question.messageId)).toEqual({
      code: 0,
      toast: noPending,
      cardChanged: true,
    });
    expect(await send(here.ann, value)).toEqual({ code: 0, toast: noPending, cardChanged: true });
    expect(await send(here.ann, { ...value, decision: "reject" })).toMatchObject({
      toast: noPending,
    });
    expect(await told()).toMatchObject([{ state: "approved" }]);
  });
});

describe("several people", () => {
  it("are counted, each once, and the card shows how far they are", async () => {
    const { here, question, click, send, told, card, pending } = await asked(({ ann, bob }) => ({
      deciders: deciders({ people: [ann, bob], count: 2 }),
    }));
    expect(await click(here.bob, "approve")).toMatchObject({
      toast: toast("success", "Approved (1 of 2)"),
      cardChanged: true,
    });
    expect(card().hasButtons).toBe(true);
    expect(await told()).toEqual([]);
    const again = await send(here.bob, { __approval__: question.approval.id, decision: "approve" });
    expect(again).toMatchObject({
      toast: toast("info", "You have said so already, others still have to."),
    });
    expect(await pending()).toBe(1);
    expect(await click(here.ann, "approve")).toMatchObject({ toast: { content: "Approved" } });
    expect(card().hasButtons).toBe(false);
    expect(await told()).toMatchObject([
      { state: "approved", decisions: [{ by: { id: here.bob } }, { by: { id: here.ann } }] },
    ]);
  });

  it("of a user group may decide through their role", async () => {
    const { here, click, told } = await asked(
      { deciders: deciders({ roles: ["ops"] }) },
      { roles: { ops: { groups: ["g_ops"] } } },
    );
    here.platform.addUserGroup({ groupId: "g_ops", members: [here.bob] });
    expect(await click(here.ann, "approve")).toMatchObject({
      toast: { type: "info" },
      cardChanged: false,
    });
    expect(await click(here.bob, "approve")).toMatchObject({ toast: { content: "Approved" } });
    expect(await told()).toMatchObject([{ state: "approved" }]);
  });
});

describe("always allow", () => {
  const remember = { tool: "deploy", pattern: "prod" };

  it("counts for nothing with a rejection", async () => {
    const { here, question, send, told } = await asked({ remember });
    await send(here.ann, {
      __approval__: question.approval.id,
      decision: "reject",
      remember: true,
    });
    const [entry] = await told();
    expect(entry?.type === "decision" ? entry.decisions : undefined).toMatchObject([
      { decision: "reject" },
    ]);
    expect(entry?.type === "decision" ? entry.decisions[0] : undefined).not.toHaveProperty(
      "remember",
    );
  });

  it("is sent to the session with the decision, and the rule left to the worker that looks at it", async () => {
    const { here, question, click, send, told } = await asked({ remember });
    expect(await click(here.ann, "always")).toMatchObject({
      toast: { content: "Approved" },
      cardChanged: true,
    });
    await send(here.ann, {
      __approval__: question.approval.id,
      decision: "approve",
      remember: true,
    });
    expect(await told()).toMatchObject([{ decisions: [{ by: { id: here.ann }, remember: true }] }]);
    expect(await here.ingress.rules.inForce(appId, here.group)).toEqual([]);
  });

  it("is what approving a proposed rule means; no session waits for it, but those who look after its cards", async () => {
    const approved = await asked({ kind: "rule", remember });
    expect(await approved.click(approved.here.ann, "approve")).toMatchObject({
      toast: { content: "Approved" },
    });
    expect(await approved.told()).toEqual([]);
    const { session, id } = approved.question.approval;
    const due = await approved.here.ingress.approvals.dueCards(Date.now() + 60_000, 10);
    expect(due).toContainEqual({ session, approvalId: id });
  });
});

describe("a question what became of a call", () => {
  it.each([
    ["retry", toast("success", "It is run again"), "retried"],
    ["abort", toast("info", "Given up"), "aborted"],
  ])("%s is taken from the requester", async (action, shown, state) => {
    const { here, click, told, card } = await asked({ kind: "outcome" });
    expect(await click(here.bob, action)).toMatchObject({
      toast: { type: "info" },
      cardChanged: false,
    });
    expect(await click(here.ann, action)).toEqual({ code: 0, toast: shown, cardChanged: true });
    expect(await told()).toMatchObject([{ state }]);
    expect(card().hasButtons).toBe(false);
  });

  it("done comes with the note", async () => {
    const { here, click, told } = await asked({ kind: "outcome" });
    const clicked = await click(here.ann, "done_form_submit", { formValue: { note: "ticket 7" } });
    expect(clicked).toMatchObject({ toast: { content: "Marked as done" } });
    expect(await told()).toMatchObject([{ state: "done", decisions: [{ note: "ticket 7" }] }]);
  });

  it("is not taken without an action of its own", async () => {
    const { here, question, send, pending } = await asked({ kind: "outcome" });
    const value = { larkline: "outcome", approval: question.approval.id, action: "approve" };
    expect(await send(here.ann, value)).toMatchObject({ toast: noPending });
    expect(await pending()).toBe(1);
  });
});

describe("AL-37: the answer comes within 3 s", () => {
  /** The platform has no answer, and tells the person of an error, half a second before Feishu would. */
  const askedInHaste = async () => await asked({}, {}, { answerWithinMs: 2_500 });

  it("with an honest toast when the store hangs before anything was written", async () => {
    const { here, click, pending } = await askedInHaste();
    here.ingress.trouble.hangs = "find";
    expect(await click(here.ann, "approve")).toEqual({
      code: 0,
      toast: toast("error", "Not taken: something did not answer. Please try again."),
      cardChanged: false,
    });
    delete here.ingress.trouble.hangs;
    expect(await pending()).toBe(1);
    expect(await click(here.ann, "approve")).toMatchObject({ toast: { content: "Approved" } });
  });

  it.each([["fails"], ["hangs"]] as const)(
    "and says that nothing is certain when the decision %s",
    async (how) => {
      const { here, click } = await askedInHaste();
      here.ingress.trouble[how] = "decide";
      const clicked = await click(here.ann, "approve");
      expect(clicked).toMatchObject({ code: 0, toast: { type: "warning" }, cardChanged: false });
    },
  );

  it.each([
    ["fails", (here: FeishuWorld) => (here.ingress.trouble.wake = true)],
    ["hangs", (here: FeishuWorld) => (here.ingress.trouble.hangs = "wake")],
  ])(
    "with `Approved` when the wake-up %s: the decision is taken, and the sweeper finds it",
    async (_, breakWake) => {
      const { here, question, click } = await askedInHaste();
      breakWake(here);
      const clicked = await click(here.ann, "approve");
      expect(clicked).toMatchObject({
        code: 0,
        toast: toast("success", "Approved"),
        cardChanged: true,
      });
      const stale = await here.ingress.store.stale(Date.now() + 60_000, 10);
      expect(stale.map(({ session }) => session)).toContain(question.session);
    },
  );
});
