import type { KeyboardEvent } from "react";

/** Whether a key press is an Enter of the user, and not the one that ends the composition of a character. */
export const isEnter = (event: KeyboardEvent): boolean => event.key === "Enter" && !event.nativeEvent.isComposing;
