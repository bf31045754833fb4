/** Whether the screen has room for one column only. */
export const isNarrowScreen = () => matchMedia("(width < 48rem)").matches;
