import { approvalCard } from "@larkline/feishu/cards";
import { decidersText } from "@larkline/agent/permissions";
import { replyLanguages, type DecisionWord, type ReplyLanguage } from "@larkline/protocol";
import type { ApprovalStatus } from "@larkline/store";
import type { ApprovalDesk, Say, SayResult } from "./approval-desk.ts";
import { toastIn, unknownPerson, withCard, wordsIn, type Click, type ClickHandler, type ToastType } from "./click.ts";
import type { EventAnswer } from "./event-router.ts";

type Bilingual = Readonly<Record<ReplyLanguage, string>>;

export interface ApprovalClicksDeps {
  app: string;
  decide: ApprovalDesk;
  /** Names of people, as far as they are known soon; never rejects. */
  namesOf: (openIds: readonly string[]) => Promise<ReadonlyMap<string, string>>;
}

const noPending: Bilingual = { en: "no pending approval", zh: "没有待处理的审批" };
const invalid: Bilingual = { en: "invalid decision", zh: "无效的决定" };

const texts = {
  repeated: { en: "You have said so already, others still have to.", zh: "你已经表态，还需要其他人。" },
  failed: { en: "Not taken: something did not answer. Please try again.", zh: "没有生效：系统没有应答，请再试一次。" },
  uncertain: {
    en: "It is not certain that this was taken. Please click again.",
    zh: "不确定是否已生效，请再点一次。",
  },
} as const satisfies Record<string, Bilingual>;

const taken: Readonly<Record<DecisionWord, Bilingual & { type: ToastType }>> = {
  approve: { type: "success", en: "Approved", zh: "已批准" },
  reject: { type: "info", en: "Rejected", zh: "已拒绝" },
  retry: { type: "success", en: "It is run again", zh: "将再次执行" },
  done: { type: "success", en: "Marked as done", zh: "已标记为完成" },
  abort: { type: "info", en: "Given up", zh: "已放弃" },
};

/** The answer to a click without an approval that could be decided. */
export function noPendingApproval(): EventAnswer {
  return toastIn("info", noPending);
}

function countedText(word: DecisionWord, { approval, decisions }: ApprovalStatus): Bilingual {
  const have = decisions.filter(({ decision }) => decision === word).length;
  const need = approval.deciders.count;
  const { en, zh } = taken[word];
  return { en: `${en} (${have} of ${need})`, zh: `${zh}（${have}/${need}）` };
}

function shown(answer: EventAnswer, status: ApprovalStatus): EventAnswer {
  return withCard(answer, approvalCard(status));
}

async function notAllowed({ namesOf }: ApprovalClicksDeps, { approval }: ApprovalStatus): Promise<EventAnswer> {
  const { deciders, requester } = approval;
  const names = await namesOf([requester.id, ...deciders.people]);
  const [zh = "", en = ""] = replyLanguages.map((language) =>
    decidersText(deciders, {
      language,
      nameOf: (openId) => names.get(openId),
      ...(names.has(requester.id) ? { requester: names.get(requester.id) ?? "" } : {}),
    }),
  );
  return toastIn("info", { en: `Only these may decide: ${en}.`, zh: `只有以下人员可以决定：${zh}。` });
}

async function answerOf(deps: ApprovalClicksDeps, word: DecisionWord, said: SayResult): Promise<EventAnswer> {
  switch (said.result) {
    case "settled":
      return shown(toastIn(taken[word].type, taken[word]), said.status);
    case "counted":
      return shown(toastIn("success", countedText(word, said.status)), said.status);
    case "repeated":
      return shown(toastIn("info", texts.repeated), said.status);
    case "closed":
      return shown(noPendingApproval(), said.status);
    case "not_allowed":
      return await notAllowed(deps, said.status);
    case "unknown":
      return noPendingApproval();
    case "failed":
      return toastIn("error", texts.failed);
    case "uncertain":
      return toastIn("warning", texts.uncertain);
  }
}

function sayOf(click: Click & { by: string }, rest: Pick<Say, "app" | "approvalId">, field: string) {
  const note = wordsIn(click.form, field);
  return (decision: DecisionWord, remember: boolean): Say => ({
    ...rest,
    decision: {
      decision,
      by: { id: click.by },
      ...(note === undefined ? {} : { note }),
      ...(remember ? { remember } : {}),
    },
  });
}

/** Key by which the buttons of approvals are known. */
export const approvalKey = "__approval__";

/**
 * The five rows of the contract, in its order: id missing, decision unknown (nothing is consumed),
 * approval not pending, approved, rejected.
 */
export function approvalClicks(deps: ApprovalClicksDeps): (click: Click) => Promise<EventAnswer> {
  return async ({ by, ...click }) => {
    const { [approvalKey]: id, decision, remember } = click.value;
    if (!id) return noPendingApproval();
    if (decision !== "approve" && decision !== "reject") return toastIn("info", invalid);
    if (by === undefined) return unknownPerson();
    const say = sayOf({ ...click, by }, { app: deps.app, approvalId: typeof id === "string" ? id : "" }, "reason");
    return await answerOf(deps, decision, await deps.decide(say(decision, remember === true)));
  };
}

/** Buttons under the question what became of a call. */
export function outcomeClicks(deps: ApprovalClicksDeps): ClickHandler {
  return async (click) => {
    const { approval: id, action } = click.value;
    if (typeof id !== "string" || (action !== "retry" && action !== "done" && action !== "abort")) return undefined;
    const say = sayOf(click, { app: deps.app, approvalId: id }, "note");
    return await answerOf(deps, action, await deps.decide(say(action, false)));
  };
}
