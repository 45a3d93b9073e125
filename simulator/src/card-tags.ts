/** What a property may hold. */
export type PropertyRule =
  | "string"
  | "number"
  | "boolean"
  | "strings"
  /** A JSON object of any form. */
  | "object"
  | "any"
  /** Components, as in a body. */
  | "elements"
  /** One of these words. */
  | readonly string[]
  /** An object with one of these tags. */
  | { tag: readonly string[] }
  /** A list of objects with one of these tags. */
  | { tags: readonly string[] }
  | { shape: Shape }
  | { shapes: Shape };

/** The properties of an object; any other is an error in JSON 2.0. */
export interface Shape {
  properties: Readonly<Record<string, PropertyRule>>;
  required?: readonly string[];
}

/** A tagged object of a card: a component, or a part of one. */
export interface TagRule extends Shape {
  /** `block` is placed in a body or container; `part` only where a property names it. */
  place: "block" | "root" | "form" | "part";
  /** Counts as a level of nesting. */
  container?: true;
  /** A person can use it: inside a form it needs a name of its own. */
  interactive?: true;
}

const plain: PropertyRule = { tag: ["plain_text"] };
const text: PropertyRule = { tag: ["plain_text", "lark_md"] };
const heading: PropertyRule = { tag: ["plain_text", "markdown", "lark_md"] };
const icon: PropertyRule = { tag: ["standard_icon", "custom_icon"] };
const byDevice: PropertyRule = {
  shape: { properties: { default: "number", android: "number", ios: "number", pc: "number" } },
};
const links = {
  url: "string",
  default_url: "string",
  pc_url: "string",
  ios_url: "string",
  android_url: "string",
} as const;
const direction: PropertyRule = ["vertical", "horizontal"];
const layout = {
  direction,
  padding: "string",
  horizontal_spacing: "string",
  horizontal_align: ["left", "center", "right"],
  vertical_spacing: "string",
  vertical_align: ["top", "center", "bottom"],
} as const;
const confirm: PropertyRule = {
  shape: { properties: { title: plain, text: plain }, required: ["title", "text"] },
};
const behaviors: PropertyRule = {
  shapes: {
    properties: { type: ["callback", "open_url"], value: "any", ...links },
    required: ["type"],
  },
};
const states = { disabled: "boolean", disabled_tips: plain, hover_tips: plain } as const;
const choice: PropertyRule = {
  shapes: { properties: { text: plain, value: "string", icon }, required: ["value"] },
};
const picker = {
  name: "string",
  type: ["default", "text"],
  placeholder: plain,
  width: "string",
  required: "boolean",
  behaviors,
  confirm,
  value: "any",
  ...states,
} as const;

/** Properties that every component may have. */
export const sharedProperties: Shape["properties"] = {
  tag: "string",
  element_id: "string",
  margin: "string",
};

const templates =
  "blue wathet turquoise green yellow orange red carmine violet purple indigo grey default".split(
    " ",
  );

/** The card itself (card JSON 2.0 structure). */
export const cardShape: Shape = {
  properties: {
    schema: ["2.0"],
    config: {
      shape: {
        properties: {
          streaming_mode: "boolean",
          streaming_config: {
            shape: {
              properties: {
                print_frequency_ms: byDevice,
                print_step: byDevice,
                print_strategy: ["fast", "delay"],
              },
            },
          },
          summary: { shape: { properties: { content: "string", i18n_content: "object" } } },
          locales: "strings",
          enable_forward: "boolean",
          update_multi: "boolean",
          width_mode: ["default", "compact", "fill"],
          use_custom_translation: "boolean",
          enable_forward_interaction: "boolean",
          style: { shape: { properties: { text_size: "object", color: "object" } } },
        },
      },
    },
    card_link: { shape: { properties: links } },
    header: {
      shape: {
        properties: {
          title: text,
          subtitle: text,
          text_tag_list: { tags: ["text_tag"] },
          i18n_text_tag_list: "object",
          template: templates,
          icon,
          padding: "string",
        },
        required: ["title"],
      },
    },
    body: { shape: { properties: { ...layout, elements: "elements" } } },
  },
};

/** Every tag with its properties (component pages of card JSON 2.0). */
export const tagRules: Readonly<Record<string, TagRule>> = {
  plain_text: textPart(),
  lark_md: textPart(),
  standard_icon: {
    place: "part",
    properties: { token: "string", color: "string", size: "string" },
    required: ["token"],
  },
  custom_icon: {
    place: "part",
    properties: { img_key: "string", size: "string" },
    required: ["img_key"],
  },
  text_tag: { place: "part", properties: { text: plain, color: "string" }, required: ["text"] },
  column: {
    place: "part",
    properties: {
      ...layout,
      elements: "elements",
      width: "string",
      weight: "number",
      background_style: "string",
      behaviors,
    },
  },

  markdown: {
    place: "block",
    properties: {
      content: "string",
      i18n_content: "object",
      text_size: "string",
      text_align: ["left", "center", "right"],
      text_color: "string",
      icon,
    },
    required: ["content"],
  },
  div: { place: "block", properties: { text, icon, width: "string" }, required: ["text"] },
  hr: { place: "block", properties: {} },
  img: {
    place: "block",
    properties: {
      img_key: "string",
      i18n_img_key: "object",
      alt: plain,
      title: text,
      corner_radius: "string",
      scale_type: ["crop_center", "crop_top", "fit_horizontal"],
      size: "string",
      transparent: "boolean",
      preview: "boolean",
    },
    required: ["img_key"],
  },
  img_combination: {
    place: "block",
    properties: {
      combination_mode: ["double", "triple", "bisect", "trisect"],
      combination_transparent: "boolean",
      corner_radius: "string",
      img_list: { shapes: { properties: { img_key: "string" }, required: ["img_key"] } },
    },
    required: ["combination_mode", "img_list"],
  },
  person: {
    place: "block",
    properties: {
      user_id: "string",
      size: ["extra_small", "small", "medium", "large"],
      style: ["normal", "capsule"],
      show_avatar: "boolean",
      show_name: "boolean",
    },
    required: ["user_id"],
  },
  person_list: {
    place: "block",
    properties: {
      persons: { shapes: { properties: { id: "string" }, required: ["id"] } },
      size: ["extra_small", "small", "medium", "large"],
      lines: "number",
      show_avatar: "boolean",
      show_name: "boolean",
      drop_invalid_user_id: "boolean",
      icon,
    },
    required: ["persons"],
  },
  audio: {
    place: "block",
    properties: { file_key: "string", audio_id: "string", show_time: "boolean", width: "string" },
    required: ["file_key"],
  },
  chart: {
    place: "block",
    properties: {
      chart_spec: "object",
      aspect_ratio: "string",
      color_theme: "string",
      preview: "boolean",
      height: "string",
    },
    required: ["chart_spec"],
  },
  table: {
    place: "root",
    properties: {
      columns: {
        shapes: {
          properties: {
            name: "string",
            display_name: "string",
            data_type: ["text", "lark_md", "options", "number", "persons", "date", "markdown"],
            width: "string",
            format: "object",
            date_format: "string",
            horizontal_align: ["left", "center", "right"],
            vertical_align: ["top", "center", "bottom"],
          },
          required: ["name"],
        },
      },
      rows: "any",
      page_size: "number",
      row_height: "string",
      row_max_height: "string",
      freeze_first_column: "boolean",
      header_style: "object",
    },
    required: ["columns", "rows"],
  },

  column_set: {
    place: "block",
    container: true,
    properties: {
      columns: { tags: ["column"] },
      flex_mode: ["none", "stretch", "flow", "bisect", "trisect"],
      background_style: "string",
      horizontal_spacing: "string",
      horizontal_align: ["left", "center", "right"],
      behaviors,
    },
    required: ["columns"],
  },
  collapsible_panel: {
    place: "block",
    container: true,
    properties: {
      ...layout,
      expanded: "boolean",
      background_color: "string",
      header: {
        shape: {
          properties: {
            title: heading,
            background_color: "string",
            vertical_align: ["top", "center", "bottom"],
            padding: "string",
            position: "string",
            width: "string",
            icon,
            icon_position: ["left", "right", "follow_text"],
            icon_expanded_angle: "number",
          },
          required: ["title"],
        },
      },
      border: { shape: { properties: { color: "string", corner_radius: "string" } } },
      elements: "elements",
    },
    required: ["header", "elements"],
  },
  form: {
    place: "root",
    container: true,
    properties: { ...layout, name: "string", elements: "elements", confirm },
    required: ["name", "elements"],
  },
  interactive_container: {
    place: "block",
    container: true,
    properties: {
      ...layout,
      ...states,
      width: "string",
      height: "string",
      background_style: "string",
      has_border: "boolean",
      border_color: "string",
      corner_radius: "string",
      behaviors,
      confirm,
      elements: "elements",
    },
    required: ["behaviors", "elements"],
  },

  button: {
    place: "block",
    interactive: true,
    properties: {
      ...states,
      text: plain,
      type: "default primary danger text primary_text danger_text primary_filled danger_filled laser".split(
        " ",
      ),
      size: ["tiny", "small", "medium", "large"],
      width: "string",
      icon,
      confirm,
      behaviors,
      name: "string",
      required: "boolean",
      form_action_type: ["submit", "reset"],
    },
  },
  input: {
    place: "block",
    interactive: true,
    properties: {
      ...states,
      name: "string",
      placeholder: plain,
      default_value: "string",
      label: plain,
      label_position: ["top", "left"],
      max_length: "number",
      input_type: ["text", "multiline_text", "password"],
      show_icon: "boolean",
      rows: "number",
      auto_resize: "boolean",
      max_rows: "number",
      width: "string",
      required: "boolean",
      value: "any",
      behaviors,
      confirm,
      fallback: "object",
    },
  },
  select_static: select({ options: choice, initial_option: "string", initial_index: "number" }),
  multi_select_static: select({ options: choice, selected_values: "strings" }, "form"),
  select_person: select({ options: choice, initial_option: "string" }),
  multi_select_person: select({ options: choice, selected_values: "strings" }, "form"),
  date_picker: select({ initial_date: "string" }),
  picker_time: select({ initial_time: "string" }),
  picker_datetime: select({ initial_datetime: "string" }),
  select_img: select({
    options: {
      shapes: {
        properties: { img_key: "string", value: "string", ...states },
        required: ["value"],
      },
    },
    multi_select: "boolean",
    layout: ["stretch", "bisect", "trisect"],
    can_preview: "boolean",
    aspect_ratio: "string",
    style: ["normal", "laser"],
  }),
  overflow: select({
    options: { shapes: { properties: { text: plain, value: "string", multi_url: "object" } } },
  }),
  checker: {
    place: "block",
    interactive: true,
    properties: {
      ...states,
      name: "string",
      checked: "boolean",
      text,
      overall_checkable: "boolean",
      button_area: "object",
      checked_style: "object",
      padding: "string",
      behaviors,
      confirm,
    },
  },
};

function textPart(): TagRule {
  return {
    place: "part",
    properties: {
      content: "string",
      i18n_content: "object",
      text_size: "string",
      text_align: ["left", "center", "right"],
      text_color: "string",
      lines: "number",
    },
    required: ["content"],
  };
}

function select(properties: Shape["properties"], place: TagRule["place"] = "block"): TagRule {
  return { place, interactive: true, properties: { ...picker, ...properties } };
}
