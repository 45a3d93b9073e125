import { describe, expect, it } from "vitest";
import { errorKindOf, isRetryableKind, type FeishuErrorKind } from "./error.ts";

/** Every code that the platform's documents list for what we call, and what it means there. */
type Rows = Partial<Record<FeishuErrorKind, readonly number[]>>;

function rowsOf(apis: readonly string[], rows: Rows): [string, number, string][] {
  return apis.flatMap((api) =>
    Object.entries(rows).flatMap(([kind, codes]) =>
      codes.map((code): [string, number, string] => [api, code, kind]),
    ),
  );
}

const everyApi = [
  "im.message.create",
  "cardkit.card.update",
  "contact.user.get",
  "interactive.card.update",
  "bot.info",
];

const gateway = rowsOf(everyApi, {
  rate_limit: [99991400, 1000004, 1000005, 11232, 11233, 11247],
  retry: [1000003, 1500, 2200, 5000, 10101, 1663],
  token: [99991663, 99991664, 99991665, 99991671],
  app_setup: [99991401, 99991403, 99991662, 99991672, 99991673, 99991679],
  bad_request: [
    99991668, 99991677, 99991201, 99991301, 99992351, 99992352, 99992353, 99992354, 99992361,
    99992402, 99991661,
  ],
});

const messages = rowsOf(["im.message.create"], {
  rate_limit: [230020],
  retry: [230049, 18121],
  target_gone: [230011, 230110, 230019, 231003],
  forbidden: [
    230002, 230013, 230015, 230017, 230018, 230027, 230029, 230035, 230036, 230038, 230050, 230053,
    230073, 230074, 230075, 231022, 232009, 232011,
  ],
  app_setup: [230006],
  too_long: [230025],
  content_blocked: [230022, 230028],
  card_invalid: [230099],
  bad_request: [230001, 230034, 230054, 230055],
});

const replies = rowsOf(["im.message.reply"], {
  rate_limit: [230020],
  no_threads: [230071],
  target_gone: [230011, 230050, 230072, 230110, 230111, 231003, 99992354],
});

const otherMessageCalls = [
  ...rowsOf(["im.message.patch"], {
    card_too_old: [230031],
    forbidden: [230071, 230072],
    rate_limit: [230020],
  }),
  ...rowsOf(["im.message.update"], { bad_request: [230071, 230072], forbidden: [230075] }),
  ...rowsOf(["im.message.delete"], { forbidden: [230009, 230026] }),
  ...rowsOf(["im.message.get"], { target_gone: [230011, 230050, 230110, 99992354] }),
  ...rowsOf(["im.message.list"], { bad_request: [231203, 231204], forbidden: [230002, 230027] }),
  ...rowsOf(["im.message.urgentApp"], {
    forbidden: [230012, 230052],
    bad_request: [230023, 230024],
  }),
  ...rowsOf(["im.message.readUsers"], { forbidden: [230012, 230033] }),
  ...rowsOf(["im.chat.get"], { bad_request: [232006], forbidden: [232009, 232011] }),
];

const reactions = rowsOf(["im.reaction.create"], {
  retry: [231015],
  target_gone: [231003, 231018],
  forbidden: [231002, 231007, 231008],
  bad_request: [231001, 231010, 231011, 231017],
});

const files = rowsOf(["im.messageResource.get", "im.image.create", "im.file.create"], {
  retry: [232096, 234019],
  too_large: [234006, 234037, 234039],
  forbidden: [234002, 234004, 234008, 234009, 234038, 234040, 234041],
  app_setup: [234007],
  bad_request: [234001, 234003, 234005, 234010, 234011, 234043],
});

const cardCalls = ["create", "update", "settings", "batchUpdate"].map(
  (name) => `cardkit.card.${name}`,
);
const cards = rowsOf([...cardCalls, "cardkit.cardElement.content"], {
  rate_limit: [230020],
  retry: [300120],
  streaming_closed: [300309, 200850, 200510],
  sequence_behind: [300317],
  applied_before: [200770],
  card_gone: [200740, 200750, 300311],
  card_locked: [200810],
  card_full: [200860, 300305],
  card_invalid: [
    10002, 200220, 200621, 230099, 300121, 300122, 300301, 300302, 300303, 300307, 300310, 300312,
    300313, 300314, 300315,
  ],
});

const delayedUpdates = rowsOf(["interactive.card.update"], {
  rate_limit: [230020],
  target_gone: [200000],
  card_gone: [200310, 200320],
  card_too_old: [300020, 300030, 300040],
  card_full: [100000],
  card_invalid: [10002, 11311, 100030, 200830],
  bad_request: [300090],
});

const tokens = rowsOf(["auth.tenantAccessToken"], { app_setup: [10003, 10014, 10015, 99991543] });

describe("errorKindOf", () => {
  it.each([
    ...gateway,
    ...messages,
    ...replies,
    ...otherMessageCalls,
    ...reactions,
    ...files,
    ...cards,
    ...delayedUpdates,
    ...tokens,
    ["im.message.create", 1, "bad_request"],
  ])("%s answered with %d is %s", (api, code, kind) =>
    expect(errorKindOf(api, { code, httpStatus: 400 })).toBe(kind),
  );

  it("does not carry the codes of messages over to other families", () => {
    expect(errorKindOf("cardkit.card.create", { code: 230002, httpStatus: 400 })).toBe(
      "bad_request",
    );
    expect(errorKindOf("im.message.create", { code: 300317, httpStatus: 400 })).toBe("bad_request");
  });

  it.each([
    [429, "rate_limit"],
    [500, "unavailable"],
    [504, "unavailable"],
    [403, "forbidden"],
    [404, "bad_request"],
    [200, "unknown"],
  ])("goes by the status %d when the code is not listed", (status, kind) =>
    expect(errorKindOf("im.message.create", { code: 0, httpStatus: status })).toBe(kind),
  );

  it("repeats only what may succeed unchanged", () => {
    for (const kind of ["unavailable", "retry", "rate_limit", "card_locked"] as const) {
      expect(isRetryableKind(kind)).toBe(true);
    }
    for (const kind of [
      "forbidden",
      "unknown",
      "card_full",
      "sequence_behind",
      "streaming_closed",
    ] as const) {
      expect(isRetryableKind(kind)).toBe(false);
    }
  });
});

describe("a refused card", () => {
  it.each([
    ["11310; ErrMsg: card action is lock", "card_locked"],
    ["11310; ErrMsg: cardid is invalid", "retry"],
    ["11310; ErrMsg: card entity can only be sent once", "card_gone"],
    ["11310; ErrMsg: card table number over limit", "card_full"],
    ["11310; ErrMsg: element exceeds the limit", "card_full"],
    ["11310; ErrMsg: something new", "card_invalid"],
    ["200810; ErrMsg: in interaction", "card_locked"],
    ["200860; ErrMsg: over 30 KB", "card_full"],
    ["300305; ErrMsg: elements", "card_full"],
    ["100290; ErrMsg: bad user", "card_invalid"],
    ["200380; ErrMsg: template", "card_invalid"],
    ["200381; ErrMsg: template not visible", "card_invalid"],
    ["200550; ErrMsg: chart", "card_invalid"],
    ["200570; ErrMsg: image key", "card_invalid"],
    ["200621; ErrMsg: parse", "card_invalid"],
    ["200732; ErrMsg: variable type", "card_invalid"],
    ["200737; ErrMsg: variable value", "card_invalid"],
    ["200861; ErrMsg: tag", "card_invalid"],
    ["200914; ErrMsg: table rows", "card_invalid"],
    ["200915; ErrMsg: table columns", "card_invalid"],
    ["300220; ErrMsg: audio", "card_invalid"],
    ["300230; ErrMsg: audio", "card_invalid"],
    ["300240; ErrMsg: audio", "card_invalid"],
  ])("because of ErrCode %s is %s, sent or updated", (reason, kind) => {
    const text = `Failed to create card content, ext=ErrCode: ${reason}; `;
    for (const api of [
      "im.message.reply",
      "im.message.create",
      "im.message.patch",
      "cardkit.card.update",
    ]) {
      expect(errorKindOf(api, { code: 230099, httpStatus: 400, text })).toBe(kind);
    }
  });

  it("is known by its words also where the platform gives the inner number as the code", () => {
    const refusal = { code: 11310, httpStatus: 200, text: "card action is lock" };
    expect(errorKindOf("cardkit.cardElement.content", refusal)).toBe("card_locked");
  });
});
